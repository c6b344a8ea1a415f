"""The pages of docs/rules: one for each diagnosis, and their index. `scripts/make_docs.py` writes them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tracelyze.catalogue import pages
from tracelyze.catalogue.entries import Entry


@dataclass(frozen=True)
class Example:
    """What was found in a faulty training of tests/trainings: `scripts/rule_examples.py` records it.

    `code` are the lines around the fault, the first of them `first_line`, the fault itself `line`; both 0 without one.
    `added` and `removed` are the edit, where the rule knows it. `figure`: what its chart shows, or empty.
    """

    training: str
    arguments: list[str]
    title: str
    summary: str
    confidence: str
    fix: str
    fix_code: str
    verify: str
    first_line: int
    line: int
    code: list[str]
    removed: list[str]
    added: list[str]
    figure: str


def index(entries: Sequence[Entry]) -> str:
    """Every rule by family, with a link to its page."""
    lines = [
        "# Diagnoses",
        "",
        f"The {len(entries)} diagnoses that tracelyze can make. For each run a rule ends as fired, passed or skipped,",
        "and says why. The ids are what `--select`, `--ignore`, the configuration and the JSON output use.",
    ]
    for family, members in groupby(entries, key=lambda entry: entry.family):
        lines += ["", f"## {family.capitalize()}", "", "| id | severity | what it finds | from |", "|---|---|---|---|"]
        lines += [
            f"| [{e.id}]({e.id}.md) | {e.severity} | {e.title} | {' or '.join(pages.reads(e))} |" for e in members
        ]
    return "\n".join(lines) + "\n"


def page(entry: Entry, example: Example | None) -> str:
    """What the rule finds, how that looks in a report, when it fires, and when it does not."""
    reads = " or a ".join({"run": "recorded run", "trace": "profiler trace"}[kind] for kind in pages.reads(entry))
    lines = [f"# {entry.id}", "", f"**{entry.title}.** Severity: {entry.severity}. From a {reads}.", ""]
    for paragraph in pages.paragraphs(entry):
        lines += [paragraph, ""]
    if example:
        lines += _example(entry.id, example)
    for heading, reasons in pages.chain(entry):
        lines += [f"## {heading}", ""]
        lines += [f"- {', '.join(f'[{rule}]({rule}.md)' for rule in rules)}: {why}" for rules, why in reasons] + [""]
    if entry.thresholds:
        lines += ["## Thresholds", "", f"Set them under `[tool.tracelyze.thresholds.{entry.id}]`.", ""]
        lines += ["| threshold | default | unit | where it comes from |", "|---|---|---|---|"]
        lines += [f"| {t.name} | {t.default:g} | {t.unit} | {t.source} |" for t in entry.thresholds] + [""]
    if references := pages.references(entry):
        lines += ["## References", "", *[f"- {reference}" for reference in references], ""]
    return "\n".join(lines).rstrip() + "\n"


def _example(rule: str, example: Example) -> list[str]:
    command = " ".join([example.training, *example.arguments])
    lines = [
        "## Example",
        "",
        f"What the report says of `tests/trainings/{command}`:",
        "",
        f"> **{example.title}** ({example.confidence})",
        ">",
        *textwrap.wrap(example.summary, 116, initial_indent="> ", subsequent_indent="> "),
        "",
    ]
    if example.figure:
        lines += [f"![{example.figure}](figures/{rule}.svg)", ""]
    if example.code:
        place = f'linenums="{example.first_line}" hl_lines="{example.line - example.first_line + 1}"'
        lines += [f"Seen at line {example.line}:", "", f"```python {place}", *_dedented(example.code), "```", ""]
    lines += ["**Fix.** " + example.fix, ""]
    if example.added or example.removed:
        edit = [f"-{line}" for line in example.removed] + [f"+{line}" for line in example.added]
        lines += ["```diff", *edit, "```", ""]
    elif example.fix_code:
        lines += ["```python", *example.fix_code.splitlines(), "```", ""]
    if example.verify:
        lines += ["**To verify.** " + example.verify, ""]
    return lines


def _dedented(code: list[str]) -> list[str]:
    return textwrap.dedent("\n".join(code)).splitlines()
