"""Reports take numbers from a chart by what it shows: how it and its lines are called is for people alone."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import tracelyze
from tracelyze.diagnosis import Diagnosis
from tracelyze.reports.html import hero
from tracelyze.reports.wording import words

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def translated(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with charts, axes over which they stand, and lines called otherwise."""

    charts = [
        replace(
            chart,
            title=f"Bild {'abcdefgh'[place]}",
            x_label="Schritt",
            lines=[replace(line, name=f"Reihe {'abcdefgh'[at]}") for at, line in enumerate(chart.lines)],
        )
        for place, chart in enumerate(diagnosis.charts)
    ]
    return replace(diagnosis, charts=charts)


def test_no_number_depends_on_what_a_chart_is_called() -> None:
    diagnosis = tracelyze.diagnose(SAMPLES / "healthy")
    other = translated(diagnosis)
    assert [chart.shows for chart in diagnosis.charts if chart.shows] == ["loss", "step-time", "memory"]
    assert words.recording(diagnosis) == words.recording(other)
    said = hero._run_numbers(diagnosis)
    assert [values for _, values, _ in said] == [values for _, values, _ in hero._run_numbers(other)]
    assert len([values for _, values, _ in said if re.search(r"\d", values)]) == 4
