"""`tracelyze rules`, `tracelyze signals` and `tracelyze schema`: what can be found, and what is recorded."""

from __future__ import annotations

import click

from tracelyze.cli import app, emit


@app.command(short_help="List or explain the diagnoses.")
@click.argument("identifier", metavar="[ID]", required=False)
@click.option("--format", "-f", type=click.Choice(["text", "json"]), default="text", help="What to print on stdout.")
def rules(identifier: str | None, format: str) -> None:
    """List every diagnosis that can be made, or explain the one that is called ID."""
    from tracelyze import catalogue, documentation

    entries = catalogue.entries()
    if identifier is not None:
        catalogue.check_ids([identifier], {entry.id: entry for entry in entries}, "rules")
    chosen = [entry for entry in entries if identifier in (None, entry.id)]
    if format == "json":
        emit(documentation.rules_json(chosen))
    elif identifier is None:
        emit(documentation.rules_list(chosen))
    else:
        emit(documentation.rule_page(chosen[0]))


@app.command(short_help="List what can be recorded, and what it costs.")
def signals() -> None:
    """List every signal: what it records, its columns, whether it is sampled and how often, what it costs."""
    from tracelyze import documentation

    emit(documentation.signals_list())


@app.command(short_help="Print what is recorded, column by column.")
def schema() -> None:
    """Print the documentation of the run directory: every file, table and column."""
    from tracelyze import documentation

    emit(documentation.run_directory_page())
