"""The pages of docs/ that are made from declarations: the run directory, from its schema; the rules, from theirs."""

from __future__ import annotations

import inspect
import json
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from tracelyze import schema

if TYPE_CHECKING:
    from tracelyze.analyzers.kineto.rule import TraceRule
    from tracelyze.analyzers.rule import Rule
    from tracelyze.catalogue import Entry


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
        lines += ["", f"## {table.name}", "", table.meaning, ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [_column_row(column) for column in table.columns]
    return "\n".join(lines) + "\n"


def rules_page(entries: Sequence[Entry]) -> str:
    """docs/rules.md: every rule's page, by family, after a table of contents."""
    lines = [
        "# Rules",
        "",
        "Every diagnosis that tracelyze can make. For each run a rule ends as fired, passed or skipped, and says why.",
        "The ids are what `--select`, `--ignore`, the configuration and the JSON output use.",
        "",
        "| id | severity | what it finds | from |",
        "|---|---|---|---|",
        *[f"| [{e.id}](#{e.id}) | {e.severity} | {e.title} | {' or '.join(_reads(e))} |" for e in entries],
    ]
    for family, members in groupby(entries, key=lambda entry: entry.family):
        lines += ["", f"## {family.capitalize()}", ""]
        lines += ["\n".join(_markdown(entry)) for entry in members]
    return "\n".join(lines).rstrip() + "\n"


def rules_list(entries: Sequence[Entry]) -> str:
    """One line a rule: id, severity, title."""
    width = max((len(entry.id) for entry in entries), default=0)
    lines = [f"{entry.id:<{width}}  {entry.severity:<8}  {entry.title}" for entry in entries]
    return "\n".join([*lines, "", "tracelyze rules ID explains one of them.", ""])


def rule_page(entry: Entry) -> str:
    """One rule, for the terminal."""
    lines = [
        f"{entry.id}: {entry.title}",
        f"{entry.severity}, family {entry.family}; from a {' or a '.join(_reads(entry))}",
    ]
    for paragraph in _paragraphs(entry):
        lines += ["", *textwrap.wrap(paragraph, 100)]
    if entry.thresholds:
        lines += ["", f"Thresholds, to be set under [tool.tracelyze.thresholds.{entry.id}]:"]
        for threshold in entry.thresholds:
            lines += [f"  {threshold.name} = {threshold.default:g} {threshold.unit}".rstrip()]
            lines += textwrap.wrap(threshold.source, 96, initial_indent="    ", subsequent_indent="    ")
    if references := _references(entry):
        lines += ["", "References:", *[f"  {reference}" for reference in references]]
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
            "reads": _reads(entry),
            "needs": [list(alternative) for alternative in entry.run.needs] if entry.run else [],
            "consequence_of": _causes(entry),
            "thresholds": [
                {"name": t.name, "default": t.default, "unit": t.unit, "source": t.source} for t in entry.thresholds
            ],
            "references": _references(entry),
        }
        for entry in entries
    ]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _column_row(column: schema.Column) -> str:
    codes = "; ".join(f"{code} = {name}" for code, name in column.codes.items())
    meaning = f"{column.meaning} ({codes})" if codes else column.meaning
    return f"| {column.name} | {column.type} | {column.unit} | {meaning} |"


def _markdown(entry: Entry) -> list[str]:
    lines = [f"### {entry.id}", "", f"**{entry.title}** ({entry.severity})", ""]
    for paragraph in _paragraphs(entry):
        lines += [paragraph, ""]
    if entry.thresholds:
        lines += ["| threshold | default | unit | where it comes from |", "|---|---|---|---|"]
        lines += [f"| {t.name} | {t.default:g} | {t.unit} | {t.source} |" for t in entry.thresholds] + [""]
    if references := _references(entry):
        lines += ["References:", "", *[f"- {reference}" for reference in references], ""]
    return lines


def _paragraphs(entry: Entry) -> list[str]:
    """What both kinds of page say about a rule, a paragraph each."""
    found: list[str] = []
    for rule in _rules(entry):
        start = "From a profiler trace: " if entry.run and rule is entry.trace else ""
        found.append(start + rule.about)
        if rule.not_when:
            found.append(f"Does not fire on: {rule.not_when}")
    if entry.run and entry.run.needs:
        found.append(f"Needs {', or '.join(' and '.join(alternative) for alternative in entry.run.needs)}.")
    if causes := _causes(entry):
        found.append(f"Counts as a consequence of {', '.join(causes)}, if that began first.")
    return found


def _rules(entry: Entry) -> list[Rule | TraceRule]:
    return [rule for rule in (entry.run, entry.trace) if rule is not None]


def _reads(entry: Entry) -> list[str]:
    return ["run"] * (entry.run is not None) + ["trace"] * (entry.trace is not None)


def _causes(entry: Entry) -> list[str]:
    return list(dict.fromkeys(cause for rule in _rules(entry) for cause in rule.consequence_of))


def _references(entry: Entry) -> list[str]:
    return list(dict.fromkeys(reference for rule in _rules(entry) for reference in rule.references))
