"""How numbers, times, steps and ranks are said, and the order in which findings are told."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tracelyze.diagnosis import Chart, Cost, Evidence, Exit, Finding, Line, Location, SignalFacts, TrainingFacts
from tracelyze.reports import render
from tracelyze.reports.wording import story, words

from . import examples


def finding(**changes: object) -> Finding:
    return replace(Finding("rule", "warning", "likely", "title", "summary", "fix"), **changes)  # type: ignore[arg-type]


def test_steps_and_ranks() -> None:
    assert words.steps(finding(first_step=2, last_step=1500)) == "steps 2 to 1,500"
    assert words.steps(finding(first_step=2, last_step=2)) == "step 2"
    assert words.steps(finding(first_step=2)) == "from step 2 on"
    assert words.steps(finding(last_step=2)) == "up to step 2"
    assert words.ranks(finding(ranks=[0]), 1) == ""
    assert words.ranks(finding(ranks=[3, 1, 2, 7]), 8) == "ranks 1 to 3 and 7 of 8"
    assert words.ranks(finding(ranks=[0, 1]), 2) == "both ranks"
    assert words.cost(finding(cost=Cost(None, None))) == ""


def test_a_limit_never_contradicts_its_value() -> None:
    assert words.limit(Evidence("smallest value", 0.0, "", 0.0)) == "limit: 0"
    assert words.limit(Evidence("tensors", 2, "tensors", 0)) == "fires above 0 tensors"
    assert words.limit(Evidence("margin", -1.0, "", 0.0, role="most")) == "fires at or below 0"
    assert words.limit(Evidence("clips", 16, "", 1, role="expected")) == "expected: 1"
    assert Evidence("clips", 16, "", 1, role="expected").fires_at == ""


def test_the_side_of_a_limit_is_declared_and_not_guessed_from_a_value_below_it() -> None:
    assert words.limit(Evidence("range", 0.1, "share", 0.25, role="most")) == "fires at \u2264 25%"
    assert words.limit(Evidence("length of the run", 39.0, "s", 60.0)) == "limit: 1 min"
    assert words.limit(Evidence("largest value", 1.0, "", 1.0)) == "limit: 1"
    assert words.limit(Evidence("largest value", 1.0, "", 1.0, role="most")) == "fires at \u2264 1"
    assert words.limit(Evidence("passes", 3, "passes", 3)) == "fires at \u2265 3 passes"
    assert Evidence("margin", 0.3, "", 0.1, role="most").fires_at == ""
    assert words.limit(Evidence("margin", 0.0, "", 0.0)) == "limit: 0"


def test_a_cost_names_its_base() -> None:
    assert words.cost(finding(cost=Cost(2.0, 1.0))) == "2 s, all of the training time"
    assert words.cost(finding(cost=Cost(2.0, 0.29))) == "2 s, 29% of the training time"


def test_a_line_at_the_top_of_a_file_stands_in_no_function() -> None:
    assert words.place(Location("train.py", 3, "<module>")) == "train.py:3"
    assert words.place(Location("train.py", 3, "train")) == "train.py:3 in train"


def test_steps_are_counted_in_the_words_of_what_was_recorded() -> None:
    run = replace(examples.healthy().run, steps=24)
    assert words.size(run) == "24 steps"
    assert words.size(replace(run, last_step=119)) == "119 steps, 24 of them logged"
    trainings = [TrainingFacts(f"training {n}", rank, 24) for n in (1, 2, 3) for rank in (0, 1)]
    assert words.size(replace(run, trainings=trainings, ranks=2)) == "3 trainings, 24 steps in the longest"


def test_recording_never_takes_more_than_all_of_the_time() -> None:
    healthy = examples.healthy()
    taken = {
        share: words.recording(replace(healthy, run=replace(healthy.run, overhead=share))) for share in (0.2, 0.54)
    }
    assert "up to three times that" in taken[0.2]
    assert "three times" not in taken[0.54]


def test_only_on_very_short_steps_may_recording_have_taken_three_times_what_it_measured() -> None:
    healthy = examples.healthy()
    run = replace(healthy.run, overhead=0.2)
    for milliseconds, most in ((2.0, "up to three times that"), (50.0, "up to twice that")):
        steps = [Line("whole step", [milliseconds] * 3)]
        chart = Chart("Time per step", "optimizer step", "ms", [1.0, 2.0, 3.0], steps, shows="step-time")
        assert most in words.recording(replace(healthy, run=run, charts=[chart]))


def test_no_note_repeats_why_nothing_is_known() -> None:
    empty = examples.empty()
    noted = replace(empty, run=replace(empty.run, notes=["read as a log", empty.verdict_reason.lower().rstrip(".")]))
    assert words.notes(noted) == ["read as a log"]
    said = re.sub(r"\s+", " ", render(noted, "text"))
    assert said.count("no optimizer took a step") == 1


def test_margin_is_a_factor_where_that_means_something() -> None:
    assert words.margin(Evidence("a", 42.0, "", 10.0)) == "4.2 \u00d7"
    for value, threshold in ((math.nan, 1.0), (1.0, 0.0), (-1.0, 1.0), ("a", 1.0), (1.0, None), (None, 1.0)):
        assert words.margin(Evidence("a", value, "", threshold)) == ""


def test_the_verdict_is_the_title_of_the_gravest_finding() -> None:
    died = replace(examples.chain(), run=examples.run_facts(exit=Exit("signal", 137)))
    assert words.verdict(died) == "Gradients are never cleared"


def test_story_follows_the_chain_in_order_of_onset() -> None:
    (chapter,) = story.chapters(examples.chain())
    assert chapter.root.anchor == "missing-zero-grad"
    assert [told.anchor for told in chapter.consequences] == [
        "exploding-gradients",
        "nonfinite-gradients",
        "loss-nonfinite",
    ]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "a", "b", "c", "d", "elsewhere"])), max_size=9)
)
def test_story_tells_every_finding_exactly_once(causes: list[tuple[str, str | None]]) -> None:
    findings = [finding(rule=rule, caused_by=cause, title=str(index)) for index, (rule, cause) in enumerate(causes)]
    chapters = story.chapters(replace(examples.empty(), findings=findings))
    told = [one for chapter in chapters for one in (chapter.root, *chapter.consequences)]
    assert sorted(one.finding.title for one in told) == sorted(one.title for one in findings)
    assert len({one.anchor for one in told}) == len(told)


def test_what_was_looked_at_less_often_says_what_that_means() -> None:
    run = examples.healthy().run
    rates = {"updates": 200, "loss": 50}
    rare = [SignalFacts(name, "on", every=every, turned_down_at=9) for name, every in rates.items()]
    said = words.less_often(replace(run, steps=5000, signals=rare))
    assert "2 signals were looked at in fewer steps (up to 200 steps apart)" in said
    assert "may be missed" in said
    assert "(some of them at its beginning only)" in words.less_often(replace(run, steps=150, signals=rare))
    assert words.less_often(replace(run, signals=[SignalFacts("updates", "on", every=200)])) == ""


def test_a_step_of_the_recording_is_the_mean_of_the_steps_that_its_share_is_of() -> None:
    healthy = examples.healthy()
    run = replace(healthy.run, overhead=0.1, overhead_per_step=0.002)
    assert words.recording(replace(healthy, run=run)).startswith("Recording took 2 ms of 20 ms a step (10%")
