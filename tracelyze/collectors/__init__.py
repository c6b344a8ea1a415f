"""The collector: launches a program and records, from inside its training processes, what happens there.

Reading order: launch (what `tracelyze collect` does) -> inject/sitecustomize (how it gets in) -> hooks (where it stands
in torch) -> recorder (what it does with what it sees) -> signals/* (one file per thing recorded) -> stream (how rows
reach the disk). Nothing here imports pandas, plotly, typer, the analyzers or the reports.
"""
