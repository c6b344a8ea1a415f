"""What was checked: passed, does not apply, needs more data with the command that records it. Folded, with a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.formatting import capitalized
from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, Markup, element, with_code
from tracelyze.reports.wording import story
from tracelyze.reports.wording.story import needs_more, not_applicable

if TYPE_CHECKING:
    from tracelyze.diagnosis import Check, Diagnosis

_OUTCOMES = {"passed": "not found", "fired": "found"}  # so that nobody reads the name of a fault as a finding
_FILTER_FROM = 8  # checks: fewer are read faster than filtered


def section(diagnosis: Diagnosis) -> Child:
    """All three groups; None where the diagnosis made no checks."""
    if not diagnosis.checks:
        return None
    fired = story.checks(diagnosis, "fired")
    passed, without, more = story.checks(diagnosis, "passed"), not_applicable(diagnosis), needs_more(diagnosis)
    counts = [("critical", fired), ("ok", passed), ("none", without), ("warning", more)]
    meter = [element("i", class_=kind, style=f"flex:{len(found)}") for kind, found in counts if found]
    groups = [
        _group(
            "ok", f"{len(passed):,} faults not found", "looked for: these checks passed", [_list(passed, "ok")], passed
        ),
        _group(
            "none", f"{len(without):,} do not apply", "nothing to check in this run", [_list(without, "none")], without
        ),
        _group("warning", f"{len(more):,} need more data", "what to record", _needs(more), more),
    ]
    folded = len(passed) + len(without) + len(more)
    return element(
        "section",
        element("h2", "What was checked"),
        element("p", _counted(diagnosis, len(fired), len(passed), len(without), len(more)), class_="intro"),
        element(
            "div",
            element("div", meter, class_="meter", aria_hidden="true"),
            _filter(folded) if folded >= _FILTER_FROM else None,
            class_="tools",
        ),
        element("p", role="status", id="hits", class_="hits"),
        element("div", [group for group in groups if group is not None], class_="rows"),
        id="checks",
    )


def _counted(diagnosis: Diagnosis, fired: int, passed: int, without: int, more: int) -> str:
    said = [f"{fired:,} found something"] if fired else []
    said += [f"{passed:,} passed"] if passed else []
    said += [f"{without:,} {'does' if without == 1 else 'do'} not apply"] if without else []
    said += [f"{more:,} {'needs' if more == 1 else 'need'} more data"] if more else []
    return f"{formatting.plural(len(diagnosis.checks), 'check')}: {', '.join(said)}."


def _filter(count: int) -> Markup:
    return element(
        "div",
        element("label", "Filter checks", for_="filter", class_="hidden-label"),
        element("input", type="search", id="filter", placeholder="Filter checks, e.g. softmax", data_count=count),
        class_="filter",
        hidden=True,
    )


def _group(kind: str, title: str, aside: str, inside: list[Markup], found: list[Check]) -> Markup | None:
    if not found:
        return None
    return element(
        "details",
        element(
            "summary",
            element("span", class_=f"dot {kind}"),
            element("span", title, class_="title"),
            element("span", aside, class_="aside"),
        ),
        element("div", inside, class_="inside"),
        class_="group",
    )


def _list(found: list[Check], kind: str) -> Markup:
    rows = [
        element(
            "li",
            element("b", element("span", f"{_OUTCOMES.get(check.status, 'not checked')}: "), check.title or check.rule),
            element("span", with_code(_sentence(check.reason)) if check.reason else None),
            data_rule=escaping.one_line(check.rule),
        )
        for check in found
    ]
    return element("ul", rows, class_=f"check-list {kind}")


def _needs(found: list[Check]) -> list[Markup]:
    """Grouped by the command that records what they need; those that no command helps come last."""
    groups: dict[str, list[Check]] = {}
    for check in found:
        groups.setdefault(check.command, []).append(check)
    ordered = sorted(groups.items(), key=lambda item: (not item[0], -len(item[1])))
    return [
        element(
            "div",
            element(
                "h3", f"Record more: {formatting.plural(len(checks), 'check')}" if command else "More or other data"
            ),
            element("code", escaping.shortened(escaping.one_line(command), 1000), class_="command")
            if command
            else None,
            _list(checks, "none"),
            class_="need",
        )
        for command, checks in ordered
    ]


def _sentence(reason: str) -> str:
    line = escaping.shortened(escaping.one_line(reason), 400)
    line = capitalized(line)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."
