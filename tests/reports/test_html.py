"""The page: what it says, in which order, how large it is, and that it asks nothing of anybody."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from tracelyze.diagnosis import Chart, Cost, Evidence, Line, Mark
from tracelyze.reports import html as html_report
from tracelyze.reports import render
from tracelyze.reports.html import thinned
from tracelyze.reports.html.charts import conclusion, proves_nothing
from tracelyze.reports.html.findings import columns

from . import examples
from .test_escaping import Elements

ASSETS = files("tracelyze.reports") / "assets"


def words(name: str) -> str:
    return " ".join(Elements(render(examples.ALL[name](), "html")).words)


@pytest.mark.parametrize("name", examples.ALL)
def test_size_stays_far_below_a_megabyte(name: str) -> None:
    assert len(render(examples.ALL[name](), "html").encode()) < 1_000_000


@pytest.mark.parametrize("name", examples.ALL)
def test_same_diagnosis_same_bytes(name: str) -> None:
    assert render(examples.ALL[name](), "html") == render(examples.ALL[name](), "html")


@pytest.mark.parametrize("name", ["chain", "warning", "healthy", "empty", "many"])
def test_no_reference_leads_out_of_the_file(name: str) -> None:
    page = Elements(render(examples.ALL[name](), "html"))
    assert all(link.startswith("#") for link in page.links)
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_links_within_the_page_have_targets() -> None:
    for make in examples.ALL.values():
        page = render(make(), "html")
        targets = set(re.findall(r' id="([^"]+)"', page))
        assert {link[1:] for link in Elements(page).links} <= targets
        identities = re.findall(r' id="([^"]+)"', page)
        assert len(identities) == len(set(identities))


def test_policy_allows_exactly_the_scripts_of_the_page() -> None:
    page = render(examples.ranks(), "html")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert policy is not None
    rules = dict(rule.split(" ", 1) for rule in html.unescape(policy[1]).split("; "))
    assert rules["default-src"] == "'none'"
    runnable = [content for one, content in Elements(page).scripts if "type" not in one]
    plotly = [line for line in (ASSETS / "vendor/plotly/VERSION").read_text().splitlines() if line.startswith("sha256")]
    hashes = [base64.b64encode(hashlib.sha256(content.encode()).digest()).decode() for content in runnable]
    hashes.append(base64.b64encode(bytes.fromhex(plotly[0].split(": ")[1])).decode())
    assert rules["script-src"] == " ".join(f"'sha256-{one}'" for one in hashes)


def test_order_is_cause_then_consequences_then_the_rest() -> None:
    said = words("chain").split("Sections", 1)[-1]
    order = [
        "train.py", "21 Nov 2026, 10:15:00 UTC", "Critical", "Root cause", "Gradients are never cleared",
        "Step 2 of 500", "10:15:00 UTC, 410 ms into the run", "Seen at train.py:41", "Fix", "To verify:",
        "What followed", "The loss is not a number", "Why we say so", "Other readings, excluded",
        "About this record", "What was checked", "31 passed", "4 do not apply", "1 need more data",
        "The run", "python train.py --lr 3e-4", "Five lines for a chat or a ticket",
    ]  # fmt: skip
    positions, at = [], 0
    for part in order:
        at = said.index(part, at)
        positions.append(at)
    assert positions == sorted(positions)


def test_the_headline_is_said_once() -> None:
    page = render(examples.chain(), "html")
    assert len(re.findall(r"<h[1-6][^>]*>Gradients are never cleared</h", page)) == 1


def test_the_edit_is_a_diff_and_an_example_is_called_one() -> None:
    page = render(examples.chain(), "html")
    added = re.findall(r'<ins data-n="(\d+)"[^>]*><i>\+</i>([^<]+)</ins>', page)
    assert added == [("41", "    optimizer.zero_grad()")]
    assert "Example fix" not in words("chain")
    example = words("warning")
    assert "Example fix" in example
    for misleading in ("Now,", "Instead"):
        assert misleading not in example


def test_consequences_carry_no_fix_of_their_own() -> None:
    said = words("chain")
    assert "Fix the cause first. These should go away with it." in said
    assert "clip_grad_norm_" not in said
    assert said.count("Example fix") + said.count("What to do") == 0


def test_a_cost_names_its_base_once_and_never_the_whole_run() -> None:
    said = words("ranks")
    assert "10 min of training" in said
    assert "20% of the training time" in said
    gpus = examples.ranks()
    slow = replace(gpus.findings[0], ranks=list(range(8)), cost=Cost(7200.0, 0.5))
    assert "16 GPU hours" in " ".join(Elements(render(replace(gpus, findings=[slow]), "html")).words)
    whole = replace(gpus.findings[0], cost=Cost(7200.0, 1.0))
    assert "100%" not in " ".join(Elements(render(replace(gpus, findings=[whole]), "html")).words)


def test_the_verdict_says_how_sure_it_is() -> None:
    assert "Root cause , certain: recorded directly" in words("chain")
    assert "Likely cause : the best explanation of what was recorded" in words("ranks")


def test_limits_say_their_side() -> None:
    assert "fires at \u2265 3 of 500" in words("chain")
    assert "margin" not in words("chain").lower()


def test_a_crash_shows_own_frames_and_the_end_of_its_traceback() -> None:
    page = render(examples.crash(), "html")
    assert page.count('class="frame own"') == 3
    error = re.search(r'<pre class="error">([^<]+)</pre>', page)
    assert error is not None
    assert error[1].startswith("RuntimeError: one of the variables")
    assert error[1].endswith("expected version 0 instead.")


def test_the_loss_of_one_rank_stands_for_that_of_the_others() -> None:
    """A crash of rank 1 draws its loss; the run's own chart is of rank 0, and says the same once more."""
    diagnosis = examples.crash()

    def loss(rank: int, last: float) -> Chart:
        values: list[float | None] = [2.0, 1.5, last]
        marks = [Mark(3.0, "exception")]
        return Chart(
            "Training loss",
            "step",
            "loss",
            [1.0, 2.0, 3.0],
            [Line("training", values)],
            marks,
            about=f"rank {rank}",
            shows="loss",
            over="steps",
            rank=rank,
        )

    findings = [replace(diagnosis.findings[0], ranks=[1], charts=[loss(1, 1.1)]), *diagnosis.findings[1:]]
    page = render(replace(diagnosis, findings=findings, charts=[loss(0, 1.2)]), "html")
    assert page.count("<b>Training loss</b>") == 2  # the chart, and its table of values
    assert "rank 0" not in page.partition('<script type="application/json"')[0]


def test_a_long_message_is_cut_in_the_middle_where_other_facts_stand_beside_it() -> None:
    diagnosis = examples.crash()
    message = "CUDA error: " + "x" * 600 + " device-side assertions"
    run = replace(diagnosis.run, exit=replace(diagnosis.run.exit, detail=message))
    ended = next(line for line in Elements(render(replace(diagnosis, run=run), "html")).words if "CUDA error" in line)
    assert len(ended) < 200
    assert ended.endswith("device-side assertions")


def test_the_commit_and_the_state_of_the_tree_stand_in_the_line_of_what_ran() -> None:
    assert "commit 4be71c9d, with changes" in words("ranks")


def test_the_summary_for_a_chat_has_five_lines() -> None:
    page = render(examples.chain(), "html")
    text = re.search(r'<pre id="summary"[^>]*>([^<]+)</pre>', page)
    assert text is not None
    lines = html.unescape(text[1]).splitlines()
    assert len(lines) == 5
    assert lines[0] == "CRITICAL missing-zero-grad: Gradients are never cleared"
    assert lines[2] == "At train.py:41 in train_epoch: loss.backward()"


def test_the_library_is_in_the_page_only_where_a_chart_is_worth_exploring() -> None:
    for name, make in examples.ALL.items():
        assert (' id="plotly"' in render(make(), "html")) == (name in ("ranks", "hostile"))
        if name not in ("ranks", "hostile"):
            assert len(render(make(), "html").encode()) < 200_000


def test_no_chart_is_drawn_twice_and_none_is_empty() -> None:
    found = examples.chain()
    empty = Chart("Nothing", "step", "loss", [1.0, 2.0], [Line("loss", [None, math.nan])])
    page = render(replace(found, charts=[*found.charts, *found.charts, empty]), "html")
    titles = re.findall(r"<figcaption><b>([^<]+)</b>", page)
    assert "Step time" in titles
    assert "Nothing" not in titles
    assert len(titles) == len(set(titles))


def test_every_finding_appears_once_and_none_is_lost() -> None:
    page = render(examples.many(), "html")
    for index in range(25):
        name = "gradient-spikes" if index == 3 else "gradient-spikes-2" if index == 4 else f"rule-{index}"
        assert page.count(f' id="{name}"') == 1
    assert len(re.findall(r'class="(?:consequence|other) ', page)) == 25 - 1 - 1  # the first, and one told inside


def test_numbers_that_are_none_are_named() -> None:
    said = words("chain")
    assert "NaN" in said
    assert "Inf" in said


def test_a_healthy_run_says_what_was_looked_at_and_what_was_not() -> None:
    said = words("healthy")
    assert "No fault found in 500 steps" in said
    assert "49 checks: 44 passed, 4 do not apply, 1 needs more data." in said
    assert "The run has one rank." in said
    assert "tracelyze collect --profile-every 100 -- python train.py" in said
    assert "cause" not in said.lower()


def test_an_empty_run_is_not_called_healthy() -> None:
    said = words("empty")
    assert "Nothing could be checked" in said
    assert "Unknown" in said
    assert "What to do" in said
    assert "No fault found" not in said
    assert "OK" not in said.split()


def test_a_recording_of_another_program_is_not_told_to_mend_its_script() -> None:
    empty = examples.empty()
    page = render(replace(empty, run=replace(empty.run, imported=True)), "html")
    assert 'id="todo"' in render(empty, "html")
    assert 'id="todo"' not in page
    assert "ended in a way" not in page


def test_an_end_before_the_first_step_has_words_of_its_own() -> None:
    crash = examples.crash()
    finding = replace(crash.findings[0], first_step=0, last_step=0, first_second=None, first_at=None)
    page = render(replace(crash, findings=[finding]), "html")
    assert "Before the first step" in page
    assert not re.search(r"<dd>\s*</dd>", page)


def test_a_page_without_charts_carries_no_library() -> None:
    assert len(render(examples.empty(), "html")) < 60_000


def test_the_diagnosis_is_in_the_page_as_data() -> None:
    for make in examples.ALL.values():
        scripts = Elements(render(make(), "html")).scripts
        data = next(content for one, content in scripts if one.get("id") == "diagnosis")
        assert json.loads(data) == json.loads(render(make(), "json"))


def test_thinning_keeps_ends_extremes_and_alignment() -> None:
    y: list[float | None] = [None if index % 7 == 0 else float(index % 100) for index in range(10_000)]
    y[4321], y[8765] = 1e9, -1e9
    chart = Chart("t", "x", "y", [float(index) for index in range(10_000)], [Line("a", y), Line("b", y[::-1])])
    diagnosis = thinned(examples.healthy().__class__(**{**vars(examples.healthy()), "charts": [chart]}), 400)
    small = diagnosis.charts[0]
    assert len(small.x) <= 420
    assert (small.x[0], small.x[-1]) == (0.0, 9999.0)
    for line, original in zip(small.lines, chart.lines, strict=True):
        assert max(value for value in line.y if value is not None) == 1e9
        assert min(value for value in line.y if value is not None) == -1e9
        assert all(value == original.y[int(at)] for at, value in zip(small.x, line.y, strict=True))


def test_limit_leaves_room_below_ten_megabytes() -> None:
    assert html_report.LIMIT < 10_000_000


# Text on its background, as the style sheet pairs them.
SEVERITIES = ("critical", "warning", "info", "ok", "none")
PAIRS = [
    *((ink, ground) for ink in ("text", "muted", "link") for ground in ("bg", "surface", "sunk")),
    *((severity, ground) for severity in SEVERITIES for ground in ("bg", "surface", f"{severity}-bg")),
    *(("text", f"{severity}-bg") for severity in SEVERITIES),
    ("muted", "critical-bg"),
    ("added", "added-bg"),
    ("removed", "removed-bg"),
    ("muted", "added-bg"),
    ("muted", "removed-bg"),
    *((f"series-{number}", "surface") for number in range(8)),
]


@pytest.mark.parametrize(("ink", "ground"), PAIRS)
def test_contrast(ink: str, ground: str) -> None:
    css = (ASSETS / "report.css").read_text(encoding="utf-8")
    pairs = dict(re.findall(r"--([\w-]+): light-dark\(([^)]+)\)", css))
    for theme in (0, 1):
        light, dark = sorted((luminance(pairs[name].split(", ")[theme]) for name in (ink, ground)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, theme


def luminance(color: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def loss_chart(values: list[float | None], marks: list[Mark] | None = None, title: str = "Training loss") -> Chart:
    steps = [float(step) for step in range(1, len(values) + 1)]
    return Chart(
        title, "step", "loss", steps, [Line("training", values)], marks=marks or [], shows="loss", over="steps", rank=0
    )


FALLING: list[float | None] = [2.0 - 0.01 * step for step in range(100)]


def test_a_loss_that_falls_is_no_argument_unless_something_is_marked_in_it() -> None:
    assert proves_nothing(loss_chart(FALLING))
    assert proves_nothing(loss_chart(FALLING, [Mark(1.0, "from the start")]))
    assert not proves_nothing(loss_chart(FALLING, [Mark(50.0, "exception")]))
    rising = replace(loss_chart(FALLING, [Mark(1.0, "lowest validation loss")]))
    rising.lines.append(Line("validation", FALLING[::-1], "points"))
    assert not proves_nothing(rising)
    assert not proves_nothing(loss_chart(FALLING[::-1]))
    assert not proves_nothing(loss_chart([1.0] * 100))
    assert not proves_nothing(loss_chart([*FALLING[:50], float("nan"), *FALLING[51:]]))
    assert not proves_nothing(loss_chart(FALLING, [Mark(1.0, "first NaN", "not-finite")])), "gaps from the start"


def first_chart(page: str) -> str:
    """What stands between the head and the reasons."""
    return page.split('id="chart"')[1].split('id="evidence"', maxsplit=1)[0] if 'id="chart"' in page else ""


def test_the_ranks_batches_side_by_side_stand_in_place_of_a_healthy_loss() -> None:
    diagnosis = examples.warning()
    table = Evidence("fingerprints of the first batches", "batch  rank 0  rank 1\n1      a3ac    a3ac")
    finding = replace(diagnosis.findings[0], charts=[], first_step=1, evidence=[table])
    page = render(replace(diagnosis, findings=[finding], charts=[loss_chart(FALLING)]), "html")
    assert not first_chart(page)
    assert re.search(r"<details[^>]* open[^>]*>\s*<summary>Fingerprints of the first batches", page)
    assert "Training loss" in page, "it stands below, as one of the charts of the run"


def test_the_loss_is_that_of_the_training_the_finding_is_about() -> None:
    diagnosis = examples.warning()
    rising = [one + 0.0 for one in reversed([value or 0.0 for value in FALLING])]
    charts = [
        replace(loss_chart([*rising], title=f"Training loss of {name}"), training=name)
        for name in ("training 1 of 2", "training 2 of 2")
    ]
    finding = replace(
        diagnosis.findings[0], charts=[], evidence=[], first_step=1, trainings=["training 2 of 2"], caused_by=None
    )
    page = render(replace(diagnosis, findings=[finding], charts=charts), "html")
    assert "Training loss of training 2 of 2" in first_chart(page)
    assert "training 1 of 2" not in first_chart(page)


def test_no_number_is_a_fact_twice() -> None:
    diagnosis = examples.warning()
    evidence = [
        Evidence("optimizer steps done before", 370, "steps"),
        Evidence("delay caused", 0.38, "share", 0.05, of="the step"),
        Evidence("largest delay", 4.67, "ms"),
    ]
    finding = replace(
        diagnosis.findings[0],
        title="Rank 7 is late: the others wait 38% of the time",
        first_step=370,
        last_step=370,
        evidence=evidence,
        cost=Cost(6.1, 0.38),
    )
    page = render(replace(diagnosis, findings=[finding]), "html")
    facts = re.search(r'<dl class="key-facts">(.*?)</dl>', page, re.DOTALL)
    assert facts is not None
    assert facts[1].count("370") == 1
    assert "Delay caused" not in facts[1]
    assert "4.67 ms" in facts[1]


def test_steps_numbered_by_a_profiler_are_not_counted_from_one() -> None:
    diagnosis = examples.warning()
    finding = replace(diagnosis.findings[0], first_step=5, last_step=10)
    page = render(replace(diagnosis, findings=[finding], run=replace(diagnosis.run, steps=6)), "html")
    assert "Step 5<" in page
    assert "Step 5 of 6" not in page


def test_a_legend_of_times_has_one_unit_and_no_crumbs() -> None:
    parts = {"computing": 10.0, "waiting": 4.0, "copies": 0.02, "launches": 0.05}
    lines = [Line(name, [value, value], "bars", "compute") for name, value in parts.items()]
    chart = Chart("Where the step went", "rank", "milliseconds", [0.0, 1.0], lines, over="ranks", unit="ms")
    diagnosis = examples.warning()
    page = render(replace(diagnosis, findings=[replace(diagnosis.findings[0], charts=[chart])]), "html")
    legend = page.split('class="legend"')[1].split("</ul>")[0]
    assert re.findall(r"<b>([^<]+)</b>", legend) == ["10 ms", "4 ms", "0.07 ms"]
    assert "2 smaller parts" in legend
    assert "copies" in page, "the table has all of them"


def test_the_comment_of_an_example_is_never_wrapped_as_code() -> None:
    diagnosis = examples.warning()
    line = "scaler.step(optimizer)  # in place of optimizer.step(), which does not know the scale of the gradients"
    finding = replace(diagnosis.findings[0], diff=None, fix_code=f'print("a # b")\n{line}')
    other = replace(diagnosis, findings=[finding])
    page = render(other, "html")
    assert '<span class="remark"># in place of optimizer.step()' in page
    assert '<span class="remark"># b' not in page
    text = render(other, "text").splitlines()
    at = next(index for index, shown in enumerate(text) if "scaler.step(optimizer)" in shown)
    assert text[at].strip() == "scaler.step(optimizer)"
    assert text[at - 1].strip().startswith("# in place of"), "the comment stands above"


def test_lines_of_equal_columns_are_a_table() -> None:
    table = "rank  waits in     line\n0     all_reduce   a.py:3\n1 *   nothing\n* holds up the others"
    found = columns.read(table)
    assert found is not None
    assert found.heads == ["rank", "waits in", "line"]
    assert found.rows == [["0", "all_reduce", "a.py:3"], ["1 *", "nothing", ""]]
    assert found.below == ["* holds up the others"]
    assert "<p>* holds up the others</p>" in columns.table(found)


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n  File \"a.py\", line 3\nKeyError: 'x'",
        "expected:  [3, 4]\nbut the checkpoint holds [3, 5]",
        "loss  1.0",
        "    indented  text\n    more      of it",
    ],
)
def test_other_lines_stay_as_they_are(text: str) -> None:
    assert columns.read(text) is None


def test_a_long_message_that_the_summary_says_is_not_said_again() -> None:
    message = "CUDA out of memory. " + "Tried to allocate 4.94 GiB on a device with 90 MiB left there. " * 3
    finding = replace(examples.crash().findings[0], summary=f"{message.strip()} It stopped.", charts=[])
    finding = replace(finding, evidence=[Evidence("message", message.strip())])
    page = html_report.render(replace(examples.crash(), findings=[finding]))
    assert "<summary>Message</summary>" not in page


def test_a_heading_compares_no_two_values_of_a_noisy_loss() -> None:
    noisy: list[float | None] = [0.5 + 0.1 * (step % 3) for step in range(99)]
    assert conclusion(loss_chart(noisy[:-1], [Mark(50.0, "onset")])) == ""
    risen: list[float | None] = [*noisy[:50], *(2.0 + 0.1 * (step % 3) for step in range(49))]
    assert conclusion(loss_chart(risen, [Mark(51.0, "onset")])).startswith("Training loss: 0.6 before step 51, 2")
