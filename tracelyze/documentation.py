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
    from tracelyze.analyzers.rule import Rule


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


def rules_page(rules: Sequence[Rule]) -> str:
    """docs/rules.md: every rule's page, by family, after a table of contents."""
    lines = [
        "# Rules",
        "",
        "Every diagnosis that tracelyze can make. For each run a rule ends as fired, passed or skipped, and says why.",
        "The ids are what `--select`, `--ignore`, the configuration and the JSON output use.",
        "",
        "| id | severity | what it finds |",
        "|---|---|---|",
        *[f"| [{rule.id}](#{rule.id}) | {rule.severity} | {rule.title} |" for rule in rules],
    ]
    for family, members in groupby(sorted(rules, key=lambda rule: _order(rules, rule)), key=lambda rule: rule.family):
        lines += ["", f"## {family.capitalize()}", ""]
        lines += ["\n".join(_markdown(rule)) for rule in members]
    return "\n".join(lines).rstrip() + "\n"


def rules_list(rules: Sequence[Rule]) -> str:
    """One line a rule: id, severity, title."""
    width = max((len(rule.id) for rule in rules), default=0)
    lines = [f"{rule.id:<{width}}  {rule.severity:<8}  {rule.title}" for rule in rules]
    return "\n".join([*lines, "", "tracelyze rules ID explains one of them.", ""])


def rule_page(rule: Rule) -> str:
    """One rule, for the terminal."""
    lines = [f"{rule.id}: {rule.title}", f"{rule.severity}, family {rule.family}", ""]
    lines += _wrapped(rule.about)
    if rule.not_when:
        lines += ["", *_wrapped(f"Does not fire on: {rule.not_when}")]
    if rule.needs:
        lines += ["", *_wrapped(f"Needs {_needs(rule)}.")]
    if rule.consequence_of:
        lines += ["", *_wrapped(f"Counts as a consequence of {', '.join(rule.consequence_of)}, if that began first.")]
    if rule.thresholds:
        lines += ["", f"Thresholds, to be set under [tool.tracelyze.thresholds.{rule.id}]:"]
        for threshold in rule.thresholds:
            lines += [f"  {threshold.name} = {threshold.default:g} {threshold.unit}".rstrip()]
            lines += textwrap.wrap(threshold.source, 96, initial_indent="    ", subsequent_indent="    ")
    if rule.references:
        lines += ["", "References:", *[f"  {reference}" for reference in rule.references]]
    return "\n".join(lines) + "\n"


def rules_json(rules: Sequence[Rule]) -> str:
    """The declarations as JSON: a list of objects."""
    data = [
        {
            "id": rule.id,
            "family": rule.family,
            "severity": rule.severity,
            "title": rule.title,
            "about": rule.about,
            "not_when": rule.not_when,
            "needs": [list(alternative) for alternative in rule.needs],
            "consequence_of": list(rule.consequence_of),
            "thresholds": [
                {"name": t.name, "default": t.default, "unit": t.unit, "source": t.source} for t in rule.thresholds
            ],
            "references": list(rule.references),
        }
        for rule in rules
    ]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _column_row(column: schema.Column) -> str:
    codes = "; ".join(f"{code} = {name}" for code, name in column.codes.items())
    meaning = f"{column.meaning} ({codes})" if codes else column.meaning
    return f"| {column.name} | {column.type} | {column.unit} | {meaning} |"


def _order(rules: Sequence[Rule], rule: Rule) -> int:
    """Families in the order of their first rule, so that each gets one heading."""
    return [other.family for other in rules].index(rule.family)


def _markdown(rule: Rule) -> list[str]:
    lines = [f"### {rule.id}", "", f"**{rule.title}** ({rule.severity})", "", rule.about, ""]
    if rule.not_when:
        lines += [f"Does not fire on: {rule.not_when}", ""]
    if rule.needs:
        lines += [f"Needs {_needs(rule)}.", ""]
    if rule.consequence_of:
        causes = ", ".join(f"[{cause}](#{cause})" for cause in rule.consequence_of)
        lines += [f"Counts as a consequence of {causes}, if that began first.", ""]
    if rule.thresholds:
        lines += ["| threshold | default | unit | where it comes from |", "|---|---|---|---|"]
        lines += [f"| {t.name} | {t.default:g} | {t.unit} | {t.source} |" for t in rule.thresholds] + [""]
    if rule.references:
        lines += ["References:", "", *[f"- {reference}" for reference in rule.references], ""]
    return lines


def _needs(rule: Rule) -> str:
    return ", or ".join(" and ".join(alternative) for alternative in rule.needs)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 100)
