"""`tracelyze rules`, `tracelyze signals` and `tracelyze schema`: what can be found, and what is recorded."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tracelyze.cli.app import app, emit


class Format(StrEnum):
    """What goes to stdout."""

    text = "text"
    json = "json"


@app.command(short_help="List or explain the diagnoses.")
def rules(
    identifier: Annotated[str | None, typer.Argument(metavar="[ID]", help="One rule's page.")] = None,
    format: Annotated[Format, typer.Option("--format", "-f", help="What to print on stdout.")] = Format.text,
) -> None:
    """List every diagnosis that can be made, or explain one."""
    from tracelyze.catalogue import entries as catalogue
    from tracelyze.catalogue import pages

    entries = catalogue.entries()
    if identifier is not None:
        catalogue.check_ids([identifier], {entry.id: entry for entry in entries}, "rules")
    chosen = [entry for entry in entries if identifier in (None, entry.id)]
    if format is Format.json:
        emit(pages.rules_json(chosen))
    elif identifier is None:
        emit(pages.rules_list(chosen))
    else:
        emit(pages.rule_page(chosen[0]))


@app.command(short_help="List what can be recorded, and what it costs.")
def signals() -> None:
    """List every signal: what it records, its columns, whether it is sampled and how often, what it costs."""
    from tracelyze.catalogue import pages

    emit(pages.signals_list())


@app.command(short_help="Print what is recorded, column by column.")
def schema() -> None:
    """Print the documentation of the run directory: every file, table and column."""
    from tracelyze.catalogue import pages

    emit(pages.run_directory_page())
