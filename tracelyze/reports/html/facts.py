"""The facts of the run, the notes on its record, and how to read the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze import formatting
from tracelyze.reports import escaping, words
from tracelyze.reports.html.icons import icon
from tracelyze.reports.markup import Child, Markup, element

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, RunFacts, SignalFacts

_SHOWN_NOTES = 4
_SHOWN_TRAININGS = 40
_LONGEST_NOTE = 500  # characters
_LONGEST_TRACEBACK = 4000


def notes(run: RunFacts) -> Child:
    """What limits this record, at the top of the page, because it limits what the page can say."""
    if not run.notes:
        return None
    rest = run.notes[_SHOWN_NOTES:]
    more = element("details", element("summary", f"{len(rest):,} more"), _notes(rest))
    return element(
        "aside",
        element("h2", icon("info"), " About this record"),
        _notes(run.notes[:_SHOWN_NOTES]),
        more if rest else None,
        class_="notes",
        aria_label="About this record",
    )


def _notes(shown: list[str]) -> Markup:
    return element("ul", [element("li", escaping.shortened(note, _LONGEST_NOTE)) for note in shown])


def section(diagnosis: Diagnosis) -> Markup:
    """Command, times, exit, environment, and what the recording itself cost."""
    run = diagnosis.run
    overhead = None if run.overhead is None else f"{formatting.percent(run.overhead)} of the step time"
    rows: list[tuple[str, Child]] = [
        ("Command", element("code", words.command(run.command)) if run.command else "not recorded"),
        ("Run directory", element("code", run.path)),
        ("Started", run.started_at or "not recorded"),
        ("Duration", formatting.duration(run.duration_s)),
        ("Size", f"{formatting.plural(run.steps, 'step')}, {formatting.plural(run.ranks, 'rank')}"),
        ("The program", words.exit_of(run)),
        ("Cost of recording", overhead or "not measured"),
    ]
    environment: list[tuple[str, Child]] = [(name, value) for name, value in run.environment.items()]
    return element(
        "section",
        element("h2", "The run"),
        _list(rows),
        _trainings(run),
        _recording(run),
        [element("h3", "Environment"), _list(environment)] if environment else None,
        id="run",
    )


def _trainings(run: RunFacts) -> Child:
    """The trainings of a run that made several, as a table."""
    if not run.trainings:
        return None
    ranked = any(training.rank for training in run.trainings)
    heads = ["Training", *(["Rank"] if ranked else []), "Steps", "Time", "Last loss", "Optimizer"]
    rows: list[Child] = []
    for training in run.trainings[:_SHOWN_TRAININGS]:
        said = [
            *([str(training.rank)] if ranked else []),
            f"{training.steps:,}",
            formatting.duration(training.seconds),
            formatting.number(training.loss),
            escaping.shortened(escaping.one_line(training.optimizer), 60),
        ]
        cells = [element("td", one, data_label=head) for one, head in zip(said, heads[1:], strict=True)]
        rows.append(element("tr", element("th", escaping.one_line(training.name), scope="row"), cells))
    rest = len(run.trainings) - _SHOWN_TRAININGS
    return [
        element("h3", f"Its {formatting.plural(len(run.trainings), 'training')}"),
        element(
            "table",
            element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
            element("tbody", rows),
            class_="evidence",
        ),
        element("p", f"and {rest:,} more", class_="quiet") if rest > 0 else None,
    ]


def _recording(run: RunFacts) -> Child:
    """What was turned down or failed, and what every signal cost."""
    if not run.signals:
        return None
    told: list[tuple[str, Child]] = []
    for signal in run.signals:
        words_of_it: list[Child] = [signal.state if signal.state != "on" else _cost(signal)]
        if signal.reason:
            words_of_it.append(f": {escaping.shortened(signal.reason, _LONGEST_NOTE)}")
        if signal.traceback:
            shown = element("pre", escaping.shortened(signal.traceback, _LONGEST_TRACEBACK))
            words_of_it.append(element("details", element("summary", "traceback"), shown))
        told.append((signal.name, words_of_it))
    return element("details", element("summary", "What was recorded, and what that cost"), _list(told))


def _cost(signal: SignalFacts) -> str:
    often = "" if signal.every is None else ", every step" if signal.every == 1 else f", every {signal.every} steps"
    slowed = "" if signal.turned_down_at is None else f" since step {signal.turned_down_at:,}"
    share = "not measured" if signal.share is None else f"{formatting.percent(signal.share)} of the time"
    return share + often + slowed


def reading() -> Markup:
    """How to read the page."""
    confidence = [
        element("div", element("dt", name.capitalize()), element("dd", f"{said}."))
        for name, said in words.CONFIDENCE.items()
    ]
    severity = [
        ("Critical", "the result of this run cannot be trusted, the run died, or most of its time is lost"),
        ("Warning", "it costs quality, money or time"),
        ("Note", "worth knowing, nothing is broken"),
    ]
    return element(
        "details",
        element("summary", element("span", "How to read this report", class_="name")),
        element(
            "div",
            element(
                "p",
                "A root cause is a finding that no other finding explains. Repair root causes, from the top; "
                "what followed from them is shown below them and goes away with them.",
            ),
            element(
                "p",
                "Every number stands beside the threshold that it was held against; the basis says why it is that one. "
                "The margin is how far the number is from its threshold.",
            ),
            element(
                "p",
                "Cost is what the fault has taken from this run so far, and so what its repair gives back at "
                "most. Costs of different findings can overlap; they do not add up.",
            ),
            element(
                "dl",
                [element("div", element("dt", name), element("dd", f"{said}.")) for name, said in severity],
                confidence,
                class_="facts",
            ),
            element(
                "p",
                "This file is complete: it loads nothing from anywhere. The diagnosis as data stands at its "
                "end, in the element with the id ",
                element("code", "diagnosis"),
                ".",
            ),
            class_="inside",
        ),
        class_="card none",
        id="reading",
    )


def _list(rows: list[tuple[str, Child]]) -> Markup:
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in rows], class_="facts"
    )
