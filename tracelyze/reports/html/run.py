"""The run: its facts, notes on its record, what recording it cost, and its trainings where it made several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze import formatting
from tracelyze.formatting import capitalized
from tracelyze.reports import escaping
from tracelyze.reports.markup import Child, Markup, element, with_code
from tracelyze.reports.wording import run_words, words

if TYPE_CHECKING:
    from tracelyze.diagnosis import Diagnosis, RunFacts, SignalFacts

_SHOWN_NOTES: Final = 6
_SHOWN_TRAININGS: Final = 40
_LONGEST_NOTE: Final = 500  # characters
_LONGEST_TRACEBACK: Final = 4000
_NAMES: Final = {
    "platform": "Platform",
    "host": "Host",
    "hostname": "Host",
    "cpus": "CPU cores",
    "cpu_count": "CPU cores",
    "cuda": "CUDA",
    "world_size": "World size",
    "framework": "Framework",
}
_ABOVE: Final = ("python", "torch", "device")
"""Facts of the environment that stand in rows of their own."""


def section(diagnosis: Diagnosis) -> Markup:
    """Command, times, exit, software, and what the recording itself cost."""
    run = diagnosis.run
    versions = [
        f"{name} {run.environment[key]}"
        for key, name in (("python", "Python"), ("torch", "PyTorch"))
        if key in run.environment
    ]
    rows: list[tuple[str, Child]] = [
        ("Command", element("code", words.command(run.command)) if run.command else None),
        ("Ended", words.exit_of(run) if run.exit.kind != "unknown" else None),
        ("Started", run_words.date(run.started_at) or None),
        ("Duration", formatting.duration(run.duration_s) if run.duration_s is not None else None),
        ("Size", run_words.extent(run)),
        ("Device", run_words.device(run) or None),
        ("Code", run_words.code(run) or ("no git commit recorded" if run.command else None)),
        ("Software", ", ".join(versions) or None),
        ("Run directory" if run.command else "Read from", element("code", run.path)),
    ]
    rows = [(name, said) for name, said in rows if said]  # what was read elsewhere leaves most of this out
    # What is 1 for every run of one process says nothing.
    rows += [
        (_NAMES.get(name) or capitalized(name), value)
        for name, value in run.environment.items()
        if name not in _ABOVE and (name, value) != ("world_size", "1")
    ]
    return element(
        "section",
        element("h2", "The run"),
        _list(rows, "card run-facts"),
        _cost_of_recording(diagnosis),
        _trainings(run),
        _signals(run),
        id="run",
    )


def notes(diagnosis: Diagnosis) -> Child:
    """What is to be known about the record, such as where it was read from; None where there is nothing."""
    said = words.notes(diagnosis)
    if not said:
        return None
    rest = said[_SHOWN_NOTES:]
    more = element("details", element("summary", f"{len(rest):,} more"), _notes(rest), class_="fold")
    return element(
        "section",
        element("h2", "About this record"),
        element("div", _notes(said[:_SHOWN_NOTES]), class_="card"),
        more if rest else None,
        id="record",
    )


def _notes(shown: list[str]) -> Markup:
    return element(
        "ul", [element("li", escaping.shortened(capitalized(note), _LONGEST_NOTE)) for note in shown], class_="notes"
    )


def _cost_of_recording(diagnosis: Diagnosis) -> Child:
    """One line, and which signals were looked at less often, all of them."""
    run, said = diagnosis.run, words.recording(diagnosis)
    if not said:
        return None
    slowed = [f"{signal.name} (every {signal.every:,} steps)" for signal in run.turned_down() if signal.every]
    return [
        element("p", with_code(said + words.less_often(run)), class_="cost-of-recording"),
        element(
            "details",
            element("summary", f"What was looked at less often: {formatting.plural(len(slowed), 'signal')}"),
            element("ul", [element("li", one) for one in slowed], class_="notes"),
            class_="fold",
        )
        if slowed
        else None,
    ]


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
    table = element(
        "table",
        element("thead", element("tr", [element("th", head, scope="col") for head in heads])),
        element("tbody", rows),
        class_="stacked",
    )
    return [
        element("h3", f"Its {formatting.plural(len(run.trainings), 'training')}"),
        element("div", table, class_="card"),
        element("p", f"and {rest:,} more", class_="quiet small") if rest > 0 else None,
    ]


def _signals(run: RunFacts) -> Child:
    """What was recorded, what was turned down or failed, and what every signal cost."""
    if not run.signals:
        return None
    rows: list[tuple[str, Child]] = []
    for signal in run.signals:
        parts: list[Child] = [signal.state if signal.state != "on" else _cost(signal)]
        if signal.reason:
            parts.append(f": {escaping.shortened(signal.reason, _LONGEST_NOTE)}")
        if signal.traceback:
            # The end of a traceback says what happened.
            shown = signal.traceback[-_LONGEST_TRACEBACK:]
            parts.append(element("details", element("summary", "traceback"), element("pre", shown, class_="command")))
        rows.append((signal.name, parts))
    summary = element("summary", "What was recorded, and what each signal cost")
    return element("details", summary, _list(rows, "run-facts"), class_="fold")


def _cost(signal: SignalFacts) -> str:
    often = "" if signal.every is None else ", every step" if signal.every == 1 else f", every {signal.every} steps"
    slowed = "" if signal.turned_down_at is None else f" since step {signal.turned_down_at:,}"
    share = "not measured" if signal.share is None else f"{formatting.percent(signal.share)} of the time"
    return share + often + slowed


def _list(rows: list[tuple[str, Child]], kind: str) -> Markup:
    return element(
        "dl", [element("div", element("dt", name), element("dd", value)) for name, value in rows], class_=kind
    )
