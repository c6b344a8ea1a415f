"""The collector: launches a program and records, from inside its training processes, what happens there.

Reading order: launching (what `tracelyze collect` does, and how it gets in) -> hooks (where it stands in torch) ->
recording (what it does with what it sees) -> signals (one file per thing recorded) -> storage (how rows reach the
disk). Nothing here imports pandas, plotly, typer, the analyzers or the reports.
"""
