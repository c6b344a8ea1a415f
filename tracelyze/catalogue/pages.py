"""What declarations say, as pages for docs/ and for the terminal: the run directory, signals, rules, errors."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tracelyze import schema
from tracelyze.analyzers import consequences
from tracelyze.catalogue import examples
from tracelyze.errors import GROUPS, Cause

if TYPE_CHECKING:
    from tracelyze.analyzers.consequences import Consequence
    from tracelyze.analyzers.kineto.rule import TraceRule
    from tracelyze.analyzers.rule import Rule
    from tracelyze.catalogue.entries import Entry
    from tracelyze.collectors.signals.signal import Signal

TERMINAL = 80  # columns of a terminal that nobody has made wider


def errors_page() -> str:
    """docs/errors.md: every code with its cause, an example, and what to do about it."""
    lines = [
        "# Errors",
        "",
        "An input that cannot be read, or a call that cannot be carried out, ends a command with exit status 2 and one",
        "line on stderr: a code, the input, the reason and the remedy. From Python it is a `tracelyze.InputError` with",
        "the same `code`. A code keeps its meaning from version to version; the words of a message do not.",
    ]
    for group, title in GROUPS.items():
        lines += ["", f"## {title}"]
        for cause in Cause:
            if cause.code.startswith(group):
                explained = cause.value
                lines += ["", f"### {cause.code}", "", explained.meaning, ""]
                lines += ["```text", f"tracelyze: error {cause.code}: {explained.example}", "```", "", explained.remedy]
    return "\n".join(lines) + "\n"


def run_directory_page() -> str:
    """docs/run-directory.md: layout, tables and columns, as the schema declares them."""
    about = inspect.getdoc(schema) or ""
    layout = textwrap.dedent("\n".join(line for line in about.splitlines() if line.startswith("  ")))
    meaning = [line for line in about.split("\n\n")[-1].splitlines() if not line.startswith("This module")]
    lines = [
        "# The run directory",
        "",
        f"Format version {schema.SCHEMA_VERSION}. Written by `tracelyze collect` and `tracelyze import`;",
        "read by `tracelyze diagnose`, and by anything that reads Parquet.",
        "",
        "```text",
        layout,
        "```",
        "",
        *meaning,
    ]
    for table in schema.TABLES:
        lines += _table(table)
    lines += ["", "# Imported profiler traces", "", "Tables in the folder of each trace."]
    for table in schema.TRACE_TABLES:
        lines += _table(table)
    return "\n".join(lines) + "\n"


def _table(table: schema.Table) -> list[str]:
    lines = ["", f"## {table.name}", "", table.meaning, ""]
    lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
    return lines + [_column_row(column) for column in table.columns]


def signals_page() -> str:
    """docs/signals.md: what the collector records, signal by signal."""
    from tracelyze.collectors.signals import SIGNALS

    lines = [
        "# Signals",
        "",
        "What `tracelyze collect` records. Every signal can be switched off (`--no-signal NAME`) or on (`--signal",
        "NAME=on`). A sampled one runs as often as the budget allows (`--budget PERCENT` of the step time, 1 unless",
        "given), the most expensive are turned down first; `--signal NAME=every:N` fixes its cadence. The run and the",
        "report say what everything cost, what was turned down since when and why, and what failed.",
        "",
        "| signal | records | when | cost | columns |",
        "|---|---|---|---|---|",
    ]
    for signal in SIGNALS:
        columns = ", ".join(f"{table}: {' '.join(names)}" for table, names in _by_table(signal.columns).items())
        lines.append(f"| {signal.name} | {signal.about} | {_when(signal)} | {signal.cost} | {columns} |")
    return "\n".join(lines) + "\n"


def signals_list() -> str:
    """The signals, for the terminal."""
    from tracelyze.collectors.signals import SIGNALS

    lines = []
    for signal in SIGNALS:
        columns = "; ".join(f"{table}: {', '.join(names)}" for table, names in _by_table(signal.columns).items())
        start = f"{signal.name}: {_when(signal)}; {signal.cost or 'cost not measured'}"
        lines += textwrap.wrap(start, TERMINAL, subsequent_indent="  ")
        for text in (signal.about, columns):
            lines += textwrap.wrap(text, TERMINAL, initial_indent="    ", subsequent_indent="    ")
    lines += ["", "collect --no-signal NAME switches one off, --signal NAME=every:N sets how often."]
    return "\n".join(lines) + "\n"


def rules_list(entries: Sequence[Entry]) -> str:
    """One line a rule: id, severity, title."""
    width = max((len(entry.id) for entry in entries), default=0)
    lines = []
    for entry in entries:
        start = f"{entry.id:<{width}}  {entry.severity:<8}  "
        lines += textwrap.wrap(
            entry.title, TERMINAL, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
        )
    return "\n".join([*lines, "", "tracelyze rules ID explains one of them.", ""])


def rule_page(entry: Entry) -> str:
    """One rule, for the terminal."""
    lines = [
        f"{entry.id}: {entry.title}",
        f"{entry.severity}, family {entry.family}; from a {' or a '.join(reads(entry))}",
    ]
    for paragraph in paragraphs(entry):
        lines += ["", *textwrap.wrap(paragraph, TERMINAL)]
    lines += examples.lines(entry.id, TERMINAL)
    for heading, reasons in chain(entry):
        lines += ["", f"{heading}:"]
        for rules, why in reasons:
            lines += textwrap.wrap(
                f"{', '.join(rules)}. {why}",
                TERMINAL,
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
    if entry.thresholds:
        lines += ["", f"Thresholds, to be set under [tool.tracelyze.thresholds.{entry.id}]:"]
        for threshold in entry.thresholds:
            lines += [f"  {threshold.name} = {threshold.default:g} {threshold.unit}".rstrip()]
            lines += textwrap.wrap(threshold.source, TERMINAL, initial_indent="    ", subsequent_indent="    ")
    if known := references(entry):
        lines += ["", "References:", *[f"  {reference}" for reference in known]]
    return "\n".join(lines) + "\n"


def rules_json(entries: Sequence[Entry]) -> str:
    """The declarations as JSON: a list of objects."""
    data = [
        {
            "id": entry.id,
            "family": entry.family,
            "severity": entry.severity,
            "title": entry.title,
            "about": entry.rule.about,
            "not_when": entry.rule.not_when,
            "reads": reads(entry),
            "needs": [list(alternative) for alternative in entry.run.needs] if entry.run else [],
            "consequence_of": list(_causes(entry)),
            "can_lead_to": [effect for effect, _ in consequences.effects_of(entry.id)],
            "thresholds": [
                {"name": t.name, "default": t.default, "unit": t.unit, "source": t.source} for t in entry.thresholds
            ],
            "references": references(entry),
        }
        for entry in entries
    ]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _when(signal: type[Signal]) -> str:
    asked = "" if signal.default_on else ", if asked for"
    if not signal.sampled:
        return "always" + asked
    usual = "every step" if signal.every == 1 else f"every {signal.every} steps"
    at_least = f", at least every {signal.max_stride}" if signal.max_stride else ""
    first = f"; all of the first {signal.first_steps}" if signal.first_steps else ""
    return f"sampled: {usual} where the budget allows{at_least}{first}{asked}"


def _by_table(columns: Sequence[str]) -> dict[str, list[str]]:
    tables: dict[str, list[str]] = {}
    for column in columns:
        table, _, name = column.partition(".")
        tables.setdefault(table, []).append(name)
    return tables


def _column_row(column: schema.Column) -> str:
    codes = "; ".join(f"{code} = {name}" for code, name in column.codes.items())
    meaning = f"{column.meaning} ({codes})" if codes else column.meaning
    return f"| {column.name} | {column.type} | {column.unit} | {meaning} |"


def paragraphs(entry: Entry) -> list[str]:
    """What both kinds of page say about a rule, a paragraph each."""
    found: list[str] = []
    for rule in _rules(entry):
        start = "From a profiler trace: " if entry.run and rule is entry.trace else ""
        found.append(start + rule.about)
        if rule.not_when:
            found.append(f"Does not fire on: {rule.not_when}")
    if entry.run and entry.run.needs:
        found.append(f"Needs {', or '.join(' and '.join(alternative) for alternative in entry.run.needs)}.")
    return found


def chain(entry: Entry) -> list[tuple[str, list[tuple[list[str], str]]]]:
    """What it can follow from, and what it can lead to: for each a heading, and the rules with the sentence of why."""
    sides = (
        ("Can follow from", _by_reason(_causes(entry).items())),
        ("Can lead to", _by_reason(consequences.effects_of(entry.id))),
    )
    return [(heading, reasons) for heading, reasons in sides if reasons]


def _by_reason(rows: Iterable[tuple[str, Consequence]]) -> list[tuple[list[str], str]]:
    reasons: dict[str, list[str]] = {}
    for rule, row in rows:
        reasons.setdefault(row.why, []).append(rule)
    return [(rules, why) for why, rules in reasons.items()]


def _rules(entry: Entry) -> list[Rule | TraceRule]:
    return [rule for rule in (entry.run, entry.trace) if rule is not None]


def reads(entry: Entry) -> list[str]:
    """What the diagnosis can be made from: run, trace, or both."""
    return ["run"] * (entry.run is not None) + ["trace"] * (entry.trace is not None)


def _causes(entry: Entry) -> dict[str, Consequence]:
    declared = consequences.with_declared(_rules(entry))
    return declared[entry.id]


def references(entry: Entry) -> list[str]:
    """Papers and documentation that the rules rest on."""
    return list(dict.fromkeys(reference for rule in _rules(entry) for reference in rule.references))
