"""Records what the pages of docs/rules show: a faulty training of tests/trainings for each rule, and its first chart.

    python scripts/rule_examples.py [RULE ...]    # then python scripts/make_docs.py

Needs matplotlib (dependency group "docs"). A rule without a labelled training gets no example.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

try:
    import matplotlib as mpl
    from matplotlib.figure import Figure
except ModuleNotFoundError:
    sys.exit("rule_examples.py draws with matplotlib: python -m pip install --group docs")
from rule_pages import Example  # noqa: E402 (after sys.path)

from tests.trainings.judge import diagnose  # noqa: E402
from tests.trainings.manifest import TRAININGS, Training  # noqa: E402
from tracelyze.catalogue.entries import entries  # noqa: E402

PAGES = ROOT / "docs" / "rules"
COLORS = ("#1b57c9", "#a8450a", "#0a6b62", "#8b93a1")
ATTEMPTS = 3  # trainings of one rule, until one has its finding


def main(chosen: list[str]) -> int:
    """Writes examples/RULE.json and figures/RULE.svg, one rule at a time."""
    for folder in ("examples", "figures"):
        (PAGES / folder).mkdir(parents=True, exist_ok=True)
    without = []
    for rule in chosen or [entry.id for entry in entries()]:
        for training in candidates(rule)[:ATTEMPTS]:
            if finding := recorded(training, rule):
                write(rule, training, finding)
                print(f"{rule}: {training.name}", flush=True)
                break
        else:
            without.append(rule)
    print(f"no example of: {', '.join(without) or 'none'}")
    return 0


def candidates(rule: str) -> list[Training]:
    """Trainings with this fault: whole scripts before those that switch a fault on, short ones first."""
    having = [training for training in TRAININGS if any(rule in root.split("|") for root in training.roots)]
    return sorted(
        having, key=lambda training: (not _first_name(training, rule), bool(training.args), not training.fast)
    )


def _first_name(training: Training, rule: str) -> bool:
    return any(root.split("|")[0] == rule for root in training.roots)


def recorded(training: Training, rule: str) -> dict[str, Any] | None:
    """The finding of the rule in a new recording of the training."""
    with tempfile.TemporaryDirectory() as folder:
        found = diagnose(training, Path(folder)).findings
    return next((finding for finding in found if finding["rule"] == rule), None)


def write(rule: str, training: Training, finding: dict[str, Any]) -> None:
    """The example as data, and its figure."""
    chart = next(iter(finding["charts"]), None)
    excerpt, location = finding["excerpt"], finding["location"]
    own = bool(excerpt and location and Path(location["file"]).name == training.script.name)
    edit = finding["diff"] or {"removed": [], "added": []}
    example = Example(
        training=training.path,
        arguments=list(training.args),
        title=finding["title"],
        summary=finding["summary"],
        confidence=finding["confidence"],
        fix=finding["fix"],
        fix_code=finding["fix_code"],
        verify=finding["verify"],
        first_line=excerpt["first_line"] if own else 0,
        line=location["line"] if own else 0,
        code=excerpt["lines"] if own else [],
        removed=edit["removed"],
        added=edit["added"],
        figure=chart["title"] if chart else "",
    )
    text = json.dumps(asdict(example), indent=2, ensure_ascii=False) + "\n"
    if any(folder in text for folder in (str(ROOT), str(Path.home()), tempfile.gettempdir())):
        raise SystemExit(f"{rule}: the example names a folder of this machine")
    (PAGES / "examples" / f"{rule}.json").write_text(text, encoding="utf-8")
    if chart:
        draw(chart).savefig(PAGES / "figures" / f"{rule}.svg", metadata={"Date": None, "Creator": None})


def draw(chart: dict[str, Any]) -> Figure:
    """The chart as the report draws it: lines, the threshold, the onset."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tracelyze", "font.family": "sans-serif"})
    figure = Figure(figsize=(8, 2.6), layout="constrained")
    axes = figure.add_subplot()
    bottom = [0.0] * len(chart["x"])
    for line, color in zip(chart["lines"], _colors(), strict=False):
        y = [float("nan") if value is None else value for value in line["y"]]
        if line["style"] == "bars":
            axes.bar(chart["x"], y, bottom=bottom, label=line["name"], color=color, width=_width(chart["x"]))
            bottom = [low + high for low, high in zip(bottom, y, strict=True)]
        elif line["style"] == "points":
            axes.plot(chart["x"], y, ".", label=line["name"], color=color)
        else:
            steps = "steps-post" if line["style"] == "steps" else "default"
            axes.plot(chart["x"], y, label=line["name"], color=color, linewidth=1.4, drawstyle=steps)
    if chart["threshold"] is not None:
        axes.axhline(chart["threshold"], color="#545c6a", linewidth=1, linestyle="--", label=chart["threshold_label"])
    for position, mark in enumerate(chart["marks"][:3]):
        color = "#b3201a" if position == 0 else "#8b93a1"
        axes.axvline(
            mark["x"], color=color, linewidth=1.2, linestyle="-" if position == 0 else "--", label=mark["label"]
        )
    values = [abs(v) for line in chart["lines"] for v in line["y"] if v]
    if chart["log_y"] and values and max(values) > 20 * min(values):
        axes.set_yscale("log")
    axes.set_title(
        ", ".join(filter(None, (chart["title"], chart["about"]))), fontsize=11, loc="left", fontweight="bold"
    )
    axes.set_xlabel(chart["x_label"], fontsize=9)
    axes.set_ylabel(chart["y_label"], fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _colors() -> Iterator[str]:
    while True:
        yield from COLORS


def _width(x: list[float]) -> float:
    return min((b - a for a, b in itertools.pairwise(x) if b > a), default=1.0) * 0.9


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
