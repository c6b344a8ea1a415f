"""The first screen: what ran, the verdict, one headline, the lead, four facts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.formatting import capitalized
from tracelyze.reports import escaping
from tracelyze.reports.html.icons import badge
from tracelyze.reports.markup import Child, Markup, element, with_code
from tracelyze.reports.wording import run_words, story, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.diagnosis import Diagnosis, Evidence, Finding, RunFacts
    from tracelyze.reports.wording.story import Anchored, Chapter


_FACTS = 4
_SHORT_VALUE = 28  # characters of a fact
_GPU = re.compile(
    r"nvidia|tesla|geforce|quadro|rtx|gtx|instinct|radeon|gaudi|gpu|\b[abghlptv]\d{1,3}\b|\bmi\d", re.IGNORECASE
)


def run_line(run: RunFacts) -> Markup:
    """One line of what ran: script, date and time, steps, ranks, device, commit, how it ended."""
    parts: list[Child] = [element("b", run_words.program(run))]
    parts += [
        part
        for part in (
            run_words.date(run.started_at),
            _steps(run),
            _ranks(run),
            run_words.device(run),
            run_words.code(run),
            run_words.ending(run),
        )
        if part
    ]
    return element("ul", [element("li", part) for part in parts], class_="ran", aria_label="What ran")


def of_finding(chapter: Chapter, diagnosis: Diagnosis, others: int) -> Markup:
    """The head of the page about a root cause; `others`: how many more root causes the page shows."""
    anchored, finding = chapter.root, chapter.root.finding
    alone = len(diagnosis.findings) == 1
    passed = len(story.checks(diagnosis, "passed")) if alone else 0
    return element(
        "div",
        verdict_line(anchored, others),
        element("h1", with_code(escaping.one_line(finding.title))),
        element("p", with_code(words.lead(finding)), class_="lead"),
        key_facts(finding, diagnosis.run, chapter, passed),
        class_="head",
        id=anchored.anchor,
    )


def of_nothing_found(diagnosis: Diagnosis) -> Markup:
    """The head of a page without findings: nothing found, or nothing known."""
    run = diagnosis.run
    passed, more = story.checks(diagnosis, "passed"), story.needs_more(diagnosis)
    if diagnosis.verdict == "unknown" or not passed:
        nothing = "No training was recorded, so nothing could be checked"
        title = nothing if not run.steps else "Too little was recorded to judge this run"
        reason = diagnosis.verdict_reason or "No check had the data that it needs."
        said: Child = f"{len(passed):,} of {formatting.plural(len(diagnosis.checks), 'check')} could run"
        lead_text = f"{capitalized(reason.rstrip('.'))}. This says nothing about the run, good or bad."
        severity = "unknown"
    else:
        title = f"No fault found{_in_what(run)}"
        said = [element("b", f"{formatting.plural(len(passed), 'check')} passed"), _rest(diagnosis)]
        rest = f"{len(more):,} more need data that this run did not record; nothing is known about them, good or bad."
        lead_text = " ".join(
            filter(None, ("Every check that could run passed.", diagnosis.verdict_reason, rest if more else ""))
        )
        severity = "ok"
    facts = _run_numbers(diagnosis) if severity == "ok" else []
    return element(
        "div",
        element("p", badge(severity), element("span", said), class_="verdict"),
        element("h1", title),
        element("p", with_code(lead_text), class_="lead"),
        _grid(facts) if facts else None,
        class_="head",
    )


def verdict_line(anchored: Anchored, others: int = 0) -> Markup:
    """Badge, how sure this is, how many more there are, and the rule."""
    finding = anchored.finding
    if finding.severity == "info":
        said: Child = "worth knowing; nothing is broken"
    else:
        comma = ", " if finding.confidence == "certain" else ": "
        said = [element("b", words.CAUSE[finding.confidence]), comma, words.KNOWN[finding.confidence]]
    more = f"{formatting.plural(others, 'other finding')} below"
    return element(
        "p",
        badge(finding.severity),
        element("span", said),
        element("a", more, href="#more") if others else None,
        element(
            "span",
            "Explained by ",
            element("code", f"tracelyze rules {escaping.one_line(finding.rule)}"),
            class_="rule",
        ),
        class_="verdict",
    )


def key_facts(finding: Finding, run: RunFacts, chapter: Chapter | None = None, passed: int = 0) -> Child:
    """Up to four facts: since when, at what cost, what followed or where, then the strongest numbers.

    `passed`: the checks that passed, in a run about which nothing else was found.
    """
    facts = [_since(finding, run), _cost(finding, run), _followed(chapter), _scope(finding, run)]
    facts.append(_until_then(finding, run, passed))
    known = [fact for fact in facts if fact is not None]
    for evidence in finding.evidence:
        if len(known) < _FACTS and (fact := _number(evidence)) is not None and not _is_said(evidence, finding, known):
            known.append(fact)
    return _grid(known[:_FACTS]) if known else None


def _in_what(run: RunFacts) -> str:
    if not run.steps:
        return ""
    if run.trainings:
        return f" in {formatting.plural(len({training.name for training in run.trainings}), 'training')}"
    return f" in {formatting.plural(run.steps, run.counts if run.last_step is None else f'logged {run.counts}')}"


def _steps(run: RunFacts) -> str:
    return words.size(run) if run.steps or run.command else ""  # what is no training has no steps to count


def _ranks(run: RunFacts) -> str:
    return formatting.plural(run.ranks, "rank") if run.ranks else ""


def _since(finding: Finding, run: RunFacts) -> tuple[str, str, str] | None:
    first = finding.first_step
    at = run_words.clock(finding.first_at)
    into = "" if finding.first_second is None else f"{formatting.duration(finding.first_second)} into the run"
    when = ", ".join(part for part in (at, into) if part)
    if first is None:
        return ("Since", into or at, at if into else "") if when else None
    if _died(finding, run):
        return "Died", f"After {run.counts} {first:,}" if first else f"Before the first {run.counts}", when
    if first <= 1 and finding.last_step != first:
        return "Since", f"The first {run.counts}", when
    counted = first if finding.last_step is None else max(first, finding.last_step)
    whole = run.steps if run.last_step is None else run.last_step
    of = f" of {whole:,}" if whole >= counted else ""  # the steps of a trace are numbered by its profiler
    return "Since" if finding.last_step != first else "At", f"{capitalized(run.counts)} {first:,}{of}", when


def _died(finding: Finding, run: RunFacts) -> bool:
    """Whether the finding is about the end of the program rather than about what led there."""
    ended = run.exit.kind in ("exception", "signal", "vanished")
    return ended and finding.first_step is not None and finding.first_step == finding.last_step


def _until_then(finding: Finding, run: RunFacts, passed: int) -> tuple[str, str, str] | None:
    if not passed or not _died(finding, run):
        return None
    return "Until then", f"{formatting.plural(passed, 'check')} passed", "nothing else was found"


def _cost(finding: Finding, run: RunFacts) -> tuple[str, str, str] | None:
    """Seconds on the ranks side by side; a share only where it is not the whole."""
    cost = finding.cost
    if cost is None or (cost.seconds is None and cost.share is None):
        return None
    ranks = len(finding.ranks)
    whole = cost.share is not None and cost.share > words.WHOLE
    share = "" if cost.share is None or whole else f"{formatting.percent(cost.share)} of {cost.of}"
    if cost.seconds is None:
        return "Cost", share or "All of the training", _affected(finding, run)
    time = formatting.duration(cost.seconds)
    on_ranks = f" on each of {ranks:,} ranks" if ranks > 1 else ""
    if ranks > 1 and _GPU.search(run_words.device(run)) and cost.seconds * ranks >= 360:
        hours = formatting.number(cost.seconds * ranks / 3600)
        return "Cost", f"{hours} GPU hours", ", ".join(part for part in (f"{time}{on_ranks}", share) if part)
    small = (
        f"{share}{on_ranks}"
        if share
        else ", ".join(part for part in (_affected(finding, run) or f"all of {cost.of}", on_ranks.strip()) if part)
    )
    return "Cost", f"{time} of training", small


def _affected(finding: Finding, run: RunFacts) -> str:
    first, last = finding.first_step, finding.last_step
    if first is None or last is None or not run.steps:
        return ""
    count, whole = last - max(first, 1) + 1, run.steps if run.last_step is None else run.last_step
    return f"{count:,} of {formatting.plural(whole, run.counts)}" if 0 < count <= whole else ""


def _followed(chapter: Chapter | None) -> tuple[str, str, str] | None:
    if chapter is None or not chapter.consequences:
        return None
    first = chapter.consequences[0].finding
    said = escaping.one_line(first.title).partition(":")[0]
    since = (
        f"from {first.counts} {first.first_step:,}; " if first.first_step is not None and first.first_step > 1 else ""
    )
    return "Then", said, since + formatting.plural(len(chapter.consequences), "consequence") + " of this cause"


def _scope(finding: Finding, run: RunFacts) -> tuple[str, str, str] | None:
    said = words.ranks(finding, run.ranks)
    if finding.trainings:
        names = ", ".join(finding.trainings[:3])
        return "Scope", formatting.plural(len(finding.trainings), "training"), escaping.shortened(names, 80)
    if not said:
        return None
    both = run.ranks == 2 and len(set(finding.ranks)) == 2
    return "Scope", "Both ranks" if both else capitalized(said), "" if _died(finding, run) else _affected(finding, run)


def _number(evidence: Evidence) -> tuple[str, str, str] | None:
    """A number that fits a fact; settings and texts stand below, and so does what is nothing without its neighbour."""
    value = evidence.value
    if value is None or isinstance(value, bool | str) or evidence.role == "basis":
        return None
    said = words.value(evidence)
    if len(said) > _SHORT_VALUE:
        return None
    return capitalized(escaping.one_line(evidence.name)), said, words.limit(evidence)


def _is_said(evidence: Evidence, finding: Finding, known: Sequence[tuple[str, str, str]]) -> bool:
    """Whether the headline, or a fact before it, says this number already."""
    value = formatting.quantity(evidence.value, evidence.unit)
    if evidence.measure == "steps" and evidence.value in (finding.first_step, finding.last_step):
        return True
    said = " ; ".join([escaping.one_line(finding.title), *(text for fact in known for text in fact[1:])])
    amount = value.partition(" ")[0] if evidence.measure == "share" else value
    return re.search(rf"(?<![\w.,]){re.escape(amount)}(?![\w%]|[.,]\d)", said) is not None


def _run_numbers(diagnosis: Diagnosis) -> list[tuple[str, str, str]]:
    """Where a healthy run got to: its loss, its speed, its memory, and what was not checked."""
    found: list[tuple[str, str, str]] = []
    more = story.needs_more(diagnosis)
    for chart in diagnosis.charts:
        known = [value for value in chart.lines[0].y if value is not None] if chart.lines else []
        if len(known) < 2 or len(found) == 3:
            continue
        if chart.shows == "loss" and not any(name == "Loss" for name, _, _ in found):
            values = f"{formatting.number(known[0])} → {formatting.number(known[-1])}"
            found.append(("Loss", values, "training loss, first and last step"))
        elif chart.shows == "step-time":
            median = sorted(known)[len(known) // 2]
            found.append(("Speed", f"{formatting.quantity(median, 'ms')} a step", "median of the steps drawn below"))
        elif chart.shows == "memory":
            found.append(
                (f"Memory, {chart.lines[0].name}", formatting.quantity(known[-1], "MiB"), "at the end of the run")
            )
    found.append(("Not checked", formatting.plural(len(more), "check"), "what to record stands below" if more else ""))
    return found


def _rest(diagnosis: Diagnosis) -> str:
    more, without = len(story.needs_more(diagnosis)), len(story.not_applicable(diagnosis))
    return (f", {more:,} need more data" if more else "") + (f", {without:,} do not apply" if without else "")


def _grid(facts: list[tuple[str, str, str]]) -> Markup:
    return element(
        "dl",
        [
            element("div", element("dt", name), element("dd", value), element("dd", small) if small else None)
            for name, value, small in facts
        ],
        class_="key-facts",
    )
