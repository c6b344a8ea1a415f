"""Reports go by what a diagnosis declares: how charts, lines, marks and units are called is for people alone."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

import tracelyze
from tracelyze import formatting
from tracelyze.diagnosis import Chart, Diagnosis, Evidence, Finding, Line, Measure
from tracelyze.reports import render
from tracelyze.reports.html import hero
from tracelyze.reports.wording import words

from . import examples

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"


def other(text: str) -> str:
    """Other words that are as long, so that they need as much room; a number stays, with its unit."""
    parts = re.split(r"([\d.,]+ ?(?:ms|s|MiB|GiB|%)?(?![A-Za-z]))", text)
    return "".join(part if at % 2 else codecs.encode(part, "rot13") for at, part in enumerate(parts))


def translated(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis with everything called otherwise that a person reads."""
    return replace(
        diagnosis,
        findings=[_finding(one) for one in diagnosis.findings],
        charts=[_chart(one) for one in diagnosis.charts],
    )


def _finding(one: Finding) -> Finding:
    evidence = [
        replace(
            item,
            name=other(item.name),
            unit=item.measure or other(item.unit),
            of=other(item.of),
            source=other(item.source),
        )
        for item in one.evidence
    ]
    return replace(one, title=other(one.title), charts=[_chart(chart) for chart in one.charts], evidence=evidence)


def _chart(one: Chart) -> Chart:
    return replace(
        one,
        title=other(one.title),
        x_label=other(one.x_label),
        y_label=other(one.y_label),
        lines=[replace(line, name=other(line.name)) for line in one.lines],
        marks=[replace(mark, label=other(mark.label)) for mark in one.marks],
        threshold_label=other(one.threshold_label),
        about=other(one.about),
    )


@cache
def sample(name: str) -> Diagnosis:
    return tracelyze.diagnose(SAMPLES / name)


def test_no_number_depends_on_what_a_chart_is_called() -> None:
    diagnosis = sample("healthy")
    renamed = translated(diagnosis)
    assert [chart.shows for chart in diagnosis.charts if chart.shows] == ["loss", "step-time", "memory"]
    assert words.recording(diagnosis) == words.recording(renamed)
    said = hero._run_numbers(diagnosis)
    assert [values for _, values, _ in said] == [values for _, values, _ in hero._run_numbers(renamed)]
    assert len([values for _, values, _ in said if re.search(r"\d", values)]) == 4


def beside_others() -> Diagnosis:
    """One rank of eight is slow: the ranks side by side, and the loss of rank 1 that stands for that of rank 0."""
    steps = [float(step) for step in range(1, 101)]
    falling: list[float | None] = [2.0 - step / 100 for step in range(100)]
    loss = Chart("Training loss", "step", "loss", steps, [Line("training", falling)], over="steps", shows="loss")
    ranks = Chart(
        "A step of each rank",
        "rank",
        "milliseconds",
        [float(rank) for rank in range(8)],
        [Line("own work", [10.0 + rank for rank in range(8)], "bars", "compute")],
        shows="ranks",
        over="ranks",
        unit="ms",
    )
    diagnosis = examples.ranks()
    charts = [replace(loss, rank=1, about="rank 1"), ranks]
    finding = replace(diagnosis.findings[0], ranks=[7], charts=charts)
    return replace(diagnosis, findings=[finding], charts=[replace(loss, rank=0, about="rank 0"), ranks])


PAGES: dict[str, Callable[[], Diagnosis]] = {
    **{name: lambda name=name: sample(name) for name in ("healthy", "missing-zero-grad", "dataloader-bottleneck")},
    "memory": lambda: sample("memory-leak"),
    "chain": examples.chain,
    "trace": examples.traced,
    "share": examples.warning,
    "ranks": examples.ranks,
    "one rank among others": beside_others,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_draws_and_writes_the_same_whatever_things_are_called(name: str) -> None:
    diagnosis = PAGES[name]()
    page, renamed = (_drawn(render(one, "html")) for one in (diagnosis, translated(diagnosis)))
    assert page == renamed
    assert page["charts"]


def _drawn(page: str) -> dict[str, list[str]]:
    """Which charts a page shows, what is drawn in them, and every number with its unit in and around them."""
    page = page.partition('<script type="application/json"')[0]
    found = {
        "charts": re.findall(r'data-chart="([^"]+)"|class="card (charts)"', page),
        "paths": re.findall(r'<path d="([^"]+)" class="([^"]+)"', page),
        "ticks": re.findall(r'<div class="[xy]-axis".*?</div>', page, re.DOTALL),
        "marks": re.findall(r"step [\d,]+(?=:)|since step [\d,]+", page),
        "rows": re.findall(r'<span class="quiet">([\d.]+ \w+)</span>', page),
        "ends": re.findall(r'class="chart-label last[^>]*>([^<]+) at \w+ [\d.,kM]+<', page),
        "tables": re.findall(r'<td class="number"[^>]*>([^<]*)<', page),
        "evidence": re.findall(
            r'<table class="evidence">|<h3>(Evidence|Settings)</h3>|<th scope="row">(<code>)?', page
        ),
        "facts": re.findall(r"[\d,.]+ ?(?:ms|MiB|GiB|%|s)?\b", " ".join(re.findall(r"<(?:dd|b)>([^<]*)<", page))),
    }
    # Beside the numbers of an axis stands its name.
    found["ticks"] = [re.sub(r"[A-Za-z]{4,}", "", one) for one in found["ticks"]]
    return {key: [str(one) for one in part] for key, part in found.items()}


def test_evidence_is_a_setting_or_a_fact_by_its_role() -> None:
    """However it is called: an argument stands among the settings, and what was looked at is no fact of the head."""
    diagnosis = examples.warning()
    evidence = [
        Evidence("Anzahl", 3, role="setting"),
        Evidence("Umfang", 4711, "Stapel", role="basis"),
        Evidence("Anteil", 0.37, "share", of="allem"),
    ]
    finding = replace(diagnosis.findings[0], evidence=evidence, cost=None, first_step=None)
    page = render(replace(diagnosis, findings=[finding]), "html")
    head, _, rest = page.partition('id="evidence"')
    assert "<dd>37% of allem</dd>" in head
    assert "4,711" not in head
    assert re.search(r"<h3>Settings</h3>.*?<code>Anzahl</code>", rest, re.DOTALL)
    assert "<code>Umfang" not in rest
    words_of = {one["name"]: (one["unit"], one["measure"]) for one in finding_of(diagnosis, evidence)}
    assert words_of == {"Anzahl": ("", ""), "Umfang": ("Stapel", ""), "Anteil": ("share of allem", "share")}


def finding_of(diagnosis: Diagnosis, evidence: list[Evidence]) -> list[dict[str, object]]:
    """The evidence as JSON holds it."""
    finding = replace(diagnosis.findings[0], evidence=evidence)
    written: list[dict[str, object]] = replace(diagnosis, findings=[finding]).to_dict()["findings"][0]["evidence"]
    return written


@pytest.mark.parametrize("measure", get_args(Measure))
def test_every_measure_is_written_in_its_own_way(measure: str) -> None:
    assert formatting.quantity(2048.0, measure) == {
        "": "2,048", "share": "204,800%", "us": "2.05 ms", "ms": "2.05 s", "s": "34 min 8 s", "bytes": "2 KiB",
        "KiB": "2 MiB", "MiB": "2 GiB", "GiB": "2 TiB", "MiB/step": "2 GiB/step", "steps": "2,048 steps",
    }[measure]  # fmt: skip
