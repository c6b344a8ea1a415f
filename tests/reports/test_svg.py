"""Charts: what is drawn for ordinary and for degenerate data."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import plotly.graph_objects as go
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.diagnosis import Chart, Line, Mark
from tracelyze.reports.drawing import axes, figures, svg

from . import examples

NUMBER = st.one_of(st.none(), st.floats(), st.integers(-5, 5).map(float))


def chart(y: list[float | None], **changes: object) -> Chart:
    facts: dict[str, object] = {
        "title": "t",
        "x_label": "step",
        "y_label": "loss",
        "x": [float(index) for index in range(len(y))],
        "lines": [Line("loss", y)],
        "over": "steps",
    }
    return Chart(**(facts | changes))  # type: ignore[arg-type]


def drawn(one: Chart) -> ElementTree.Element:
    """The drawing as a tree; the parser refuses what is not well-formed."""
    return ElementTree.fromstring(svg.draw(one))


def paths(one: Chart, kind: str) -> list[str]:
    return [part.get("d", "") for part in drawn(one).iter("path") if kind in part.get("class", "")]


def labels(one: Chart) -> list[str]:
    return ["".join(part.itertext()) for part in drawn(one).iter("span")]


def test_a_line_has_a_point_for_each_value() -> None:
    assert paths(chart([1.0, 2.0, 3.0]), "stroke")[0].count("L") == 2


def test_gaps_break_the_line() -> None:
    path = paths(chart([1.0, 2.0, None, math.nan, 3.0, 4.0, math.inf, 5.0]), "stroke")
    assert path[0].count("M") == 2
    assert paths(chart([1.0, 2.0, None, 3.0]), "dots")[0].count("M") == 1  # a value between gaps is still seen


def test_steps_hold_their_value() -> None:
    assert re.fullmatch(
        r"M\S+ \S+(H\S+V\S+){2}", paths(chart([1, 2, 3], lines=[Line("a", [1, 2, 3], "steps")]), "stroke")[0]
    )


@pytest.mark.parametrize("y", [[], [None], [None, None], [math.nan] * 3, [1.0], [5.0] * 4, [0.0], [0.0, 0.0]])
@pytest.mark.parametrize("log", [True, False])
def test_little_or_nothing_to_draw(y: list[float | None], log: bool) -> None:
    tree = drawn(chart(y, log_y=log, marks=[Mark(0.0, "here")], threshold=1.0))
    assert "NaN" not in ElementTree.tostring(tree, encoding="unicode").replace("nan", "NaN")


def test_log_scale_skips_zeros_and_falls_back_without_positive_values() -> None:
    assert paths(chart([0.0, 1.0, 10.0, -1.0, 100.0, 1000.0], log_y=True), "stroke")[0].count("M") == 2
    assert len(paths(chart([0.0, -1.0, -2.0], log_y=True), "stroke")) == 1


def test_log_ticks_are_decades() -> None:
    said = labels(chart([1.0, 1e4], log_y=True))
    assert "1" in said
    assert "100" in said
    assert "10k" in said


def test_a_huge_range_is_drawn_inside_the_box() -> None:
    for log in (True, False):
        path = paths(chart([1e-300, 1.0, 1.7e308, -1.7e308, 5e-324], log_y=log), "stroke")
        numbers = [float(one) for one in re.findall(r"[\d.]+", path[0])]
        assert max(numbers) <= 1000


@pytest.mark.parametrize(
    ("values", "begins"),
    [
        ([9.0] * 4 + [1.0] + [4.9] * 5, True),
        ([4.9] * 5 + [1.0] + [9.0] * 4, False),
        ([4.9] * 4 + [1.0, 9.0] + [4.9] * 4, True),  # the value at the end has a label of its own there
    ],
)
def test_the_words_of_a_limit_stand_where_the_line_leaves_room(values: list[float], begins: bool) -> None:
    page = svg.draw(chart(values, threshold=5.0, threshold_label="guess", healthy="below"))
    label = re.search(r'<span class="chart-label healthy-label([^"]*)" style="left:([^;]*);', page)
    assert label is not None
    assert label.groups() == (("", "6px") if begins else (" end", "100%"))


def test_threshold_is_a_line_inside_and_words_outside() -> None:
    assert "limit: 1.5" in labels(chart([1.0, 2.0], threshold=1.5, threshold_label="limit"))
    assert "limit: 5,000, far above" in labels(chart([1.0, 2.0], threshold=5000.0, threshold_label="limit"))


def test_onset_is_marked() -> None:
    one = chart([1.0, 2.0, 3.0], marks=[Mark(1.0, "since step 1"), Mark(2.0, "end")])
    onset = [part for part in drawn(one).iter("i") if "onset" in part.get("class", "")]
    assert [part.get("style", "").split(";")[0] for part in onset] == ["left:50%"]
    assert {"since step 1", "end"} <= set(labels(one))


def test_the_healthy_side_of_a_limit_is_shaded_and_only_where_it_is_known() -> None:
    def shaded(side: str) -> list[tuple[str | None, str | None]]:
        one = chart([0.0, 50.0, 100.0], threshold=25.0, healthy=side)
        return [(part.get("y"), part.get("height")) for part in drawn(one).iter("rect")]

    below, above = shaded("below"), shaded("above")
    assert shaded("") == []
    assert float(below[0][0] or 0) == pytest.approx(float(above[0][1] or 0))
    assert float(below[0][0] or 0) + float(below[0][1] or 0) == pytest.approx(300)


def test_a_log_axis_is_drawn_only_where_values_span_more_than_a_factor_of_twenty() -> None:
    assert not svg.is_log(chart([1.0, 19.0], log_y=True))
    assert svg.is_log(chart([1.0, 500.0], log_y=True))
    assert not svg.is_log(chart([1.0, 500.0]))


def test_looks_far_apart_are_joined_by_dashes() -> None:
    x = [*map(float, range(20)), 70.0, 120.0]
    one = chart([1.0] * 22, x=x, lines=[Line("norm", [1.0 + index for index in range(22)])])
    assert paths(one, "sparse")[0].count("M") == 2
    assert paths(one, "dots")[0].count("M") == 2
    assert [path.count("L") for path in paths(one, "stroke") if path.count("L") > 2] == [19]


def test_the_last_value_says_where_it_was_read() -> None:
    """Of a sampled value that is not the end of the run."""
    assert "30 ms at step 2" in labels(chart([10.0, 20.0, 30.0], unit="ms"))
    longer = replace(chart([10.0, 20.0, 30.0], unit="ms"), x=[1.0, 100.0, 250.0])
    shown = str(svg.draw(longer, svg.span([longer, chart([1.0] * 300)])))
    assert "30 ms at step 250<" in shown
    two = chart([1.0, 2.0], lines=[Line("a", [1.0, 2.0]), Line("b", [2.0, 1.0])])
    assert not [label for label in labels(two) if " at step " in label]


def test_a_line_that_would_lie_flat_at_zero_is_drawn_on_a_logarithmic_axis() -> None:
    steps = range(1, 11)
    learned, other = [2.0 / 4**step for step in steps], [2.0 + step / 10 for step in steps]
    apart = chart(learned, lines=[Line("training", learned), Line("validation", other)])
    assert svg.is_log(apart)
    near = chart(other, lines=[Line("training", [value / 10 for value in other]), Line("validation", other)])
    assert not svg.is_log(near), "ten times lower is still seen"
    assert not svg.is_log(chart(learned)), "one line hides no other"
    zero = chart(other, lines=[Line("training", [0.0] * 10), Line("validation", other)])
    assert not svg.is_log(zero), "such an axis has no zero"
    assert not svg.is_log(replace(apart, unit="share")), "shares are read from 0 to 100%"


def test_shares_read_in_percent() -> None:
    assert "50%" in labels(chart([0.0, 0.5, 1.0], unit="share"))


def test_marks_without_room_are_listed_below() -> None:
    crowd = [Mark(float(index), f"a rather long label {index}") for index in range(12)]
    one = chart([float(index) for index in range(12)], marks=crowd)
    shown = set(labels(one)) & {mark.label for mark in crowd}
    assert shown
    assert {mark.label for mark in svg.unlabelled(one)} == {mark.label for mark in crowd} - shown


def test_it_can_be_read_aloud() -> None:
    picture = next(drawn(examples.growth()).iter("svg"))
    assert picture.get("role") == "img"
    said = picture.get("aria-label") or ""
    for words in ("Gradient norm", "from 0.8 at 1", "20 gaps", "Limit 100", "not a number at 131"):
        assert words in said


def test_charts_of_one_card_share_their_x_axis() -> None:
    long, short = chart([1.0] * 101), chart([2.0] * 11)
    x = svg.span([long, short])
    assert (x.low, x.high) == (0.0, 100.0)
    area = next(part for part in ElementTree.fromstring(svg.draw(short, x)).iter("div") if part.get("class") == "area")
    assert area.get("data-x1") == "100"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.floats(), NUMBER, NUMBER), max_size=12),
    st.lists(st.floats(), max_size=3),
    NUMBER,
    st.booleans(),
    st.sampled_from(["line", "points", "steps"]),
)
def test_any_chart_is_drawn_and_is_a_figure(
    points: list[tuple[float, float | None, float | None]],
    marks: list[float],
    threshold: float | None,
    log: bool,
    style: str,
) -> None:
    one = Chart(
        "t",
        "x",
        "y",
        [x for x, _, _ in points],
        [Line("a", [y for _, y, _ in points], style), Line("b", [y for _, _, y in points])],  # type: ignore[arg-type]
        [Mark(x, "here") for x in marks],
        threshold,
        "limit",
        log,
    )
    assert drawn(one) is not None
    go.Figure(figures.figure(one))


@pytest.mark.parametrize("name", examples.ALL)
def test_figures_are_valid_plotly(name: str) -> None:
    diagnosis = examples.ALL[name]()
    for one in [*diagnosis.charts, *(one for finding in diagnosis.findings for one in finding.charts)]:
        figure = go.Figure(figures.figure(one))
        assert len(figure.data) == len(one.lines)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=8), st.booleans())
def test_ticks_lie_on_the_axis(values: list[float], whole: bool) -> None:
    axis = axes.linear(values, whole=whole)
    assert len(axis.ticks) <= 50
    for tick in axis.ticks:
        assert -1e-6 <= (axis.fraction(tick) or 0.0) <= 1 + 1e-6
        assert not whole or tick == int(tick)
    assert all(-1e-6 <= (axis.fraction(value) or 0.0) <= 1 + 1e-6 for value in values)


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (0.25, "0.25"), (1500, "1,500"), (20_000, "20k"), (1.5e6, "1.5M"), (1e-7, "1e-7"), (3e15, "3e15")],
)
def test_tick_labels(value: float, said: str) -> None:
    assert axes.label(value) == said
