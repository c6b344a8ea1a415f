"""slow-steps: steps with a rhythm or a cause beside them, and slow steps that are nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.analyzers.sites import sites_of
from tests.analyzers.step_times import SAVES, ends, looks, seconds, steps


def test_slow_steps_with_a_rhythm(make) -> None:
    taken = seconds(400, SAVES)
    process = make.process(steps(make, seconds=taken, time=ends(taken)), evals={})
    status, _, finding = make.check("slow-steps", process)
    assert status == "fired"
    assert "every 50 steps" in finding.summary
    assert (finding.severity, finding.confidence, finding.first_step) == ("warning", "possible", 50)
    assert finding.cost.seconds == pytest.approx(8 * 1.15, rel=0.02)


def test_slow_steps_that_wait_for_workers_whose_processors_others_hold(make) -> None:
    taken = seconds(400, {17: 2.0, 90: 2.1, 161: 2.2, 250: 1.9, 333: 2.4})
    wait = [value - 0.05 if value and value > 1 else 0.001 for value in taken]
    end = ends(taken)
    for share, severity in ((0.05, "warning"), (0.5, "info")):
        time = np.arange(0.0, end[-1])
        samples = {"time": time.tolist(), "delayed": (share * time).tolist()}
        table = steps(make, seconds=taken, time=end, loader_wait=wait)
        _, _, finding = make.check("slow-steps", make.process(table, evals={}, samples=samples))
        assert ("Others held the processors for 50%" in finding.summary) == (severity == "info")
        assert finding.severity == severity


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("np.savez_compressed(path, **arrays)", "Line 2 compresses what it writes (savez_compressed)"),
        ("frame.to_csv(path)", "Line 2 writes a file, in these steps only"),
        ("json.dump(history, file)", "Line 2 writes a file, in these steps only"),
        ("orthogonalise(net)", "Look at that function"),
        ("json.dumps(history)", "Look at that function"),
    ],
)
def test_slow_steps_in_which_a_line_was_seen_writing(make, line: str, said: str) -> None:
    taken = seconds(400, SAVES)
    end = ends(taken)
    seen = sorted(end[index] - 0.5 for index in SAVES)
    samples = {"time": seen, "innermost": ["zipfile.py:1167 write"] * len(seen), "site": [1] * len(seen)}
    sites = sites_of(f"def keep(path):\n    {line}", sampled=line.split("(", maxsplit=1)[0])
    process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=samples, sites=sites)
    assert make.check("slow-steps", process)[2].fix.startswith(said)


def test_slow_steps_in_which_the_program_was_seen_saving(make) -> None:
    taken = seconds(400, SAVES)
    end = ends(taken)
    seen = [end[index] - 0.5 for index in SAVES] + [1.0, 2.0, 3.0]
    samples = {
        "time": sorted(seen),
        "innermost": [
            "torch/serialization.py:979 save" if moment in seen[:8] else "torch/nn/modules/conv.py:560 _conv_forward"
            for moment in sorted(seen)
        ],
        "site": [3] * len(seen),
    }
    process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=samples)
    _, _, finding = make.check("slow-steps", process)
    assert "torch/serialization.py:979 save" in finding.summary
    assert "Save less often" in finding.fix
    assert finding.confidence == "likely"
    assert finding.location.line == 60


def saves(moments: list[float]) -> list[dict]:
    return [{"time": moment, "step": 0, "action": "save", "site": 3} for moment in moments]


@pytest.mark.parametrize(
    ("every", "upto", "said"),
    [
        (50, 400, "Line 60 wrote a file of weights in all 8 of them that were looked at, and in no other step."),
        (50, 200, "Line 60 wrote a file of weights in all 4 of them that were looked at, and in no other step."),
        (100, 400, "Line 60 wrote a file of weights in 4 of the 8 of them"),
        (10, 400, "Nothing that was recorded coincides"),  # other steps save, too, and are no slower
        (50, 100, "Nothing that was recorded coincides"),  # two are too few
    ],
)
def test_slow_steps_in_which_a_file_of_weights_was_written(make, every: int, upto: int, said: str) -> None:
    """The record holds the first saves of a run."""
    taken = seconds(400, SAVES)
    end = ends(taken)
    written = saves([end[index] - 0.02 for index in range(every - 1, upto, every)])
    process = make.process(steps(make, seconds=taken, time=end), evals={}, more={"checkpoints": written})
    _, _, finding = make.check("slow-steps", process)
    assert said in finding.summary
    assert (finding.location is not None and finding.location.line == 60) == ("Line 60" in said)
    assert (finding.confidence == "likely") == ("Line 60" in said)


PACKED = """\
def save(self, state, path):
    with gzip.open(path, "wb", compresslevel=9) as stream:
        torch.save(state, stream)"""


BESIDE = """\
def save(self, state, path):
    torch.save(state, path)
    shutil.make_archive(path, "zip", self.folder)"""


PLAIN = """\
def save(self, state, path):
    torch.save(state, path)"""


@pytest.mark.parametrize(
    ("text", "line", "by"),
    [
        (PACKED, 2, "gzip"),
        (BESIDE, 3, "make_archive"),
        (PLAIN, 2, ""),
        (f"def restore(self, path):\n    state = torch.load(gzip.open(path))\n\n{PLAIN}", 5, ""),
        (PLAIN.replace("    torch", '    old = gzip.open(path, "rb").read()\n    torch'), 3, ""),
    ],
)
def test_a_checkpoint_that_is_compressed(make, text: str, line: int, by: str) -> None:
    """What another function compresses, or what is read, is not it."""
    taken = seconds(400, SAVES)
    end = ends(taken)
    written = [row | {"site": 1} for row in saves([end[index] - 0.02 for index in range(49, 400, 50)])]
    sites = sites_of(text, save="torch.save(")
    process = make.process(steps(make, seconds=taken, time=end), evals={}, sites=sites, more={"checkpoints": written})
    _, _, finding = make.check("slow-steps", process)
    assert finding.location.line == line
    assert ("compresses the checkpoint" in finding.fix) == bool(by)
    if by:
        assert f"Line {line} compresses the checkpoint ({by})" in finding.fix


@pytest.mark.parametrize(
    ("condition", "setting", "line"),
    [
        ("if step % args.save_every == 0:", "save_every: int = 50", 5),
        ("if step % args.save_every == 0:", 'parser.add_argument("--save-every", type=int, default=50)', 5),
        ("if step % 50 == 0:", "log_every = 50", 23),
        ("if step % args.save_every == 0:", "save_every: int = 10", 72),  # not what was seen
        ("if loss < best:", "save_every: int = 50", 72),
    ],
)
def test_the_line_that_says_how_often_a_loop_saves(make, condition: str, setting: str, line: int) -> None:
    taken = seconds(400, SAVES)
    end = ends(taken)
    written = [row | {"site": 1} for row in saves([end[index] - 0.02 for index in range(49, 400, 50)])]
    rows = [
        (1, "save", 72, "save", "    torch.save(state, path)"),
        (2, "backward", 22, "main", f"    loss.backward()\n    {condition}\n        save(state, path)"),
        (3, "data", 5, "Args", f"    {setting}"),
    ]
    sites = [
        {"site": site, "role": role, "file": "train.py", "line": at, "function": name, "excerpt_line": at}
        | {"excerpt": text, "source": text.split("\n")[0].strip()}
        for site, role, at, name, text in rows
    ]
    process = make.process(steps(make, seconds=taken, time=end), evals={}, sites=sites, more={"checkpoints": written})
    finding = make.check("slow-steps", process)[2]
    assert finding.location.line == line
    assert finding.fix.startswith("Save less often, or" if line == 72 else f"Save less often (line {line}), or")


@pytest.mark.parametrize(("every", "said"), [(50, True), (100, False), (4, False)])
def test_slow_steps_beside_evaluations(make, every: int, said: bool) -> None:
    """Not of half of them alone; and not where a model is asked in many steps."""
    taken = seconds(400, SAVES)
    end = ends(taken)
    passes = list(range(every - 1, 400, every))
    evals = make.evals(len(passes)) | {
        "time_start": [end[index] - 0.004 for index in passes],
        "time_end": [end[index] - 0.002 for index in passes],
        "after_step": passes,
    }
    _, _, finding = make.check("slow-steps", make.process(steps(make, seconds=taken, time=end), evals=evals))
    assert ("The model was evaluated in each of them" in finding.summary) == said
    signs = [{"step": 1, "site": 1, "weights": 32.0, "weights_negative": 0.5} for _ in range(8)]
    acts = make.process(steps(make, seconds=taken, time=end), evals=evals, more={"loss_graphs": signs})
    acted = make.check("slow-steps", acts)
    assert (acted[0] == "passed") == said, "its environment takes the time"


def test_slow_steps_at_one_distance_where_some_begin_an_epoch(make) -> None:
    """First steps of epochs are not judged, so the row of slow ones has gaps. What comes by chance has none of it."""
    slow = dict.fromkeys(range(20, 500, 20), 0.4)
    first = [1 if index % 100 == 0 else 0 for index in range(500)]
    for steps_of, said in ((slow, True), ({index + index % 7: 0.4 for index in slow}, False)):
        taken = seconds(500, steps_of)
        table = steps(make, 500, seconds=taken, time=ends(taken), loader_first=first)
        _, _, finding = make.check("slow-steps", make.process(table, evals={}))
        assert (", every 20 steps," in finding.summary) == said


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"loader_wait": [1.1 if index in SAVES else 0.001 for index in range(400)]}, "waiting for a batch"),
        ({"batch_size": [320 if index in SAVES else 32 for index in range(400)]}, "a larger batch"),
        ({"overhead": [1.1 if index in SAVES else 0.001 for index in range(400)]}, "recording by tracelyze"),
    ],
)
def test_what_coincides_with_slow_steps(make, columns, said) -> None:
    taken = seconds(400, SAVES)
    process = make.process(steps(make, seconds=taken, time=ends(taken), **columns), evals={})
    _, _, finding = make.check("slow-steps", process)
    assert {one.name: one.value for one in finding.evidence}["what coincides"] == said
    assert finding.confidence == "likely"


def test_a_few_looks_at_slow_steps_with_a_rhythm(make) -> None:
    every = dict.fromkeys(range(30, 400, 20), 0.4)  # 19 of them, of which the sampler met seven
    for slow, named in ((every, True), ({index + index % 7: 0.4 for index in every}, False)):
        taken = seconds(400, slow)
        end = ends(taken)
        met = [end[index] - 0.2 for index in list(slow)[4:11]]
        samples = {"time": met, "innermost": ["train.py:12 collect"] * 7, "site": [3] * 7, "delayed": [0.0] * 7}
        process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=samples)
        _, _, finding = make.check("slow-steps", process)
        assert ("In 7 of 7 samples" in finding.summary) == named, "at an even distance"


def test_slow_steps_of_a_crowded_machine_are_told_and_alarm_nobody(make) -> None:
    hiccups = dict.fromkeys((60, 97, 150, 181, 260, 288, 333), 1.3)
    taken = seconds(400, hiccups)
    end = ends(taken)
    moments = sorted([0.0, end[-1], *[end[i] - 1.3 for i in hiccups], *[end[i] for i in hiccups]])
    lost = np.cumsum([0, *(1.25 if np.isclose(b - a, 1.3) else 0.0 for a, b in itertools.pairwise(moments))])
    samples = {"time": moments, "delayed": lost.tolist(), "innermost": ["torch/autograd/graph.py:8 run"] * len(moments)}
    process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=samples)
    _, _, finding = make.check("slow-steps", process)
    assert {one.name: one.value for one in finding.evidence}["what coincides"] == "other programs on the processors"
    assert finding.severity == "info"
    unexplained = make.process(steps(make, seconds=taken, time=end), evals={})
    assert make.check("slow-steps", unexplained)[2].severity == "info", "no rhythm, no cause: nothing to act on"


@pytest.mark.parametrize(
    ("takes", "share", "status"),
    [
        (0.8, 0.6, "passed"),
        (0.8, 0.2, "fired"),
        (1.3, 0.6, "fired"),  # long enough to be looked at: others took as much of all other steps
    ],
)
def test_slow_steps_without_a_cause_where_others_held_the_processors(make, takes, share, status) -> None:
    """What others take is looked at once a second: whether they made a shorter step slow is not known."""
    taken = seconds(400, dict.fromkeys((60, 97, 150, 181, 260, 288, 333, 371), takes))
    end = ends(taken)
    looked = looks(end[-1], [share * moment for moment in np.linspace(0, end[-1], 20)])
    process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=looked)
    assert make.check("slow-steps", process)[0] == status


@pytest.mark.parametrize(
    ("long", "also", "named"),
    [
        (7, 0, True),
        (2, 0, False),  # two of seven that were looked at
        (7, 60, False),  # batches as long are no slow steps elsewhere
        (0, 0, False),
    ],
)
def test_slow_steps_whose_batches_are_long(make, long: int, also: int, named: bool) -> None:
    """On a machine that others use all the time, too: a long step meets them longer."""
    hiccups = [60, 97, 150, 181, 260, 288, 333]
    taken = seconds(400, dict.fromkeys(hiccups, 1.3))
    end = ends(taken)
    samples = {"time": [0.0, end[-1]], "delayed": [0.0, 0.6 * end[-1]], "innermost": ["a.py:8 run"] * 2}
    lengthy = {*hiccups[:long], *range(1, 2 * also, 2)}
    batches = [
        {"step": index, "loader": 0, "epoch": 0, "batch": index, "trained": True, "field": "0", "dtype": "int64",
         "shape": f"32x{1400 if index in lengthy else 120 + index % 9}"}
        for index in sorted({*range(0, 400, 3), *hiccups, *lengthy})
    ]  # fmt: skip
    process = make.process(steps(make, seconds=taken, time=end), evals={}, samples=samples, more={"batches": batches})
    _, _, finding = make.check("slow-steps", process)
    said = {one.name: one.value for one in finding.evidence}["what coincides"]
    assert (said == "a longer batch") is named
    assert said != "other programs on the processors", "they took as much of all other steps"
    assert ("32x1400, usually 32x1" in finding.summary) is named
    assert (finding.severity == "warning") is named


def test_slow_steps_of_a_model_that_is_asked_in_every_step(make) -> None:
    """An agent calls its model for each action: such passes are in slow and in usual steps alike."""
    end = ends(seconds(400, SAVES))
    acts = {
        "time_start": [moment - 0.02 for moment in end],
        "time_end": [moment - 0.01 for moment in end],
        "after_step": list(range(400)),
        "forwards": [1] * 400,
        "losses": [1] * 400,
        "trained": [True] * 400,
        "loader": [7] * 400,
    }
    process = make.process(steps(make, seconds=seconds(400, SAVES), time=end), evals=acts)
    assert make.check("slow-steps", process)[0] == "fired"


def evaluated() -> dict:
    """A validation pass of a second in every 50th step, told by the table of evaluations."""
    end = ends(seconds(400, SAVES))
    return {
        "time_start": [end[index] - 1.16 for index in SAVES],
        "time_end": [end[index] - 0.01 for index in SAVES],
        "after_step": list(SAVES),
    }


@pytest.mark.parametrize(
    ("slow", "extra"),
    [
        ({}, {}),
        (dict.fromkeys(range(8), 3.0), {}),  # warm-up and compilation
        (SAVES, {"evals": evaluated()}),
        (SAVES, {"columns": {"loader_first": [index in SAVES for index in range(400)]}}),  # another rule's
        (SAVES, {"windows": [{"first_step": index + 1, "last_step": index + 1} for index in SAVES]}),  # profiled
        (dict.fromkeys(range(0, 400, 4), 0.2), {}),  # two kinds of steps: long sequences
        ({100: 0.4}, {}),  # once
        (dict.fromkeys((90, 130, 222, 310), 0.9), {}),  # hiccups of a busy machine
        (dict.fromkeys(range(0, 400, 20), 0.09), {}),  # jitter
    ],
)
def test_slow_steps_is_silent(make, slow, extra) -> None:
    taken = seconds(400, slow)
    table = steps(make, seconds=taken, time=ends(taken), **extra.get("columns", {}))
    process = make.process(table, evals=extra.get("evals", {}), windows=extra.get("windows"))
    status, reason, _ = make.check("slow-steps", process)
    assert status == "passed", reason


def test_slow_steps_needs_steps(make) -> None:
    taken = seconds(40, {20: 3.0})
    process = make.process(steps(make, 40, seconds=taken, time=ends(taken)), evals={})
    assert make.check("slow-steps", process)[0] == "skipped"


def test_slow_steps_of_a_short_run(make) -> None:
    taken = [0.288 if index % 40 == 39 else 0.001 for index in range(240)]
    more = {"seconds": taken, "time": ends(taken), "loader_wait": [0.0] * 240, "loader_first": [False] * 240}
    process = make.process(make.steps(240) | more, evals={})
    _, _, finding = make.check("slow-steps", process)
    assert (finding.severity, "every 40 steps" in finding.summary) == ("warning", True)
    taken = [0.288 if index in (30, 71, 180) else 0.001 for index in range(240)]  # hiccups of a busy machine
    more |= {"seconds": taken, "time": ends(taken)}
    assert make.check("slow-steps", make.process(make.steps(240) | more, evals={}))[0] == "passed"


def test_regular_slow_steps_of_a_short_run_are_noted_below_half_of_its_time(make) -> None:
    """At an even distance no hiccups come; for a warning, a second is too little where it is not most of the time."""
    taken = [0.2 if index % 40 == 39 else 0.01 for index in range(320)]
    more = {"seconds": taken, "time": ends(taken), "loader_wait": [0.0] * 320, "loader_first": [False] * 320}
    _, _, finding = make.check("slow-steps", make.process(make.steps(320) | more, evals={}))
    assert (finding.severity, "every 40 steps" in finding.summary) == ("info", True)
    assert 0.1 < finding.cost.share < 0.5
    taken = [0.2 if index in (30, 71, 115, 160, 190, 240, 301) else 0.01 for index in range(320)]
    more |= {"seconds": taken, "time": ends(taken)}
    assert make.check("slow-steps", make.process(make.steps(320) | more, evals={}))[0] == "passed"


def every(distance: int, slow: float, usual: float, count: int = 600, more: dict[int, float] | None = None) -> list:
    return seconds(count, dict.fromkeys(range(distance - 1, count, distance), slow) | (more or {}), usual)


@pytest.mark.parametrize(
    ("taken", "severity"),
    [
        (every(20, 0.18, 0.006), "warning"),  # most of the time
        (every(8, 0.09, 0.006), "warning"),  # more than every tenth step: weights are saved
        (every(20, 0.18, 0.006, more={113: 0.4, 311: 0.3}), "warning"),  # two hiccups beside them
        (every(20, 0.04, 0.004, 1200), "info"),  # less than a hiccup takes each, and 2 s in all
        (every(20, 0.04, 0.006, 6000), "warning"),  # 10 s in all
    ],
)
def test_every_nth_step_of_a_short_run_is_slow(make, taken, severity) -> None:
    process = make.process(steps(make, len(taken), seconds=taken, time=ends(taken)), evals={})
    status, reason, finding = make.check("slow-steps", process)
    assert status == "fired", reason
    assert finding.severity == severity
    assert "every 20 steps" in finding.summary or "every 8 steps" in finding.summary
    crowded = looks(ends(taken)[-1], [0.0, ends(taken)[-1] / 2, ends(taken)[-1]])
    process = make.process(steps(make, len(taken), seconds=taken, time=ends(taken)), evals={}, samples=crowded)
    assert make.check("slow-steps", process)[2].severity == severity, "others do not come every n-th step"


def with_validation(taken: list[float | None], distance: int) -> dict:
    """A validation pass in every slow step, which takes a part of what the step takes beyond the others."""
    rows = range(distance - 1, len(taken), distance)
    return {
        "time_start": [ends(taken)[row] - 0.012 for row in rows],
        "time_end": [ends(taken)[row] - 0.01 for row in rows],
        "after_step": list(rows),
    }


@pytest.mark.parametrize(
    ("taken", "evals", "columns"),
    [
        (every(20, 0.024, 0.006), {}, {}),  # four times as long: a lazy penalty
        (every(4, 0.09, 0.006), {}, {}),  # a second kind of step
        (seconds(600, dict.fromkeys((31, 90, 171, 204, 322, 415, 501, 560), 0.12), 0.006), {}, {}),  # hiccups
        (seconds(600, dict.fromkeys((99, 199, 299, 399), 0.3), 0.006), {}, {}),  # too few for a rhythm
        (every(20, 0.05, 0.006), with_validation(every(20, 0.05, 0.006), 20), {}),  # and what belongs to it
        (every(8, 0.05, 0.006), {}, {"loader_wait": [v - 0.006 if v else 0 for v in every(8, 0.05, 0.006)]}),  # workers
        (every(20, 0.05, 0.006), {}, {"overhead": [v - 0.006 if v else 0 for v in every(20, 0.05, 0.006)]}),  # ours
    ],
)
def test_recurring_steps_that_are_none_or_are_told_elsewhere(make, taken, evals, columns) -> None:
    table = steps(make, len(taken), seconds=taken, time=ends(taken), **columns)
    status, _, finding = make.check("slow-steps", make.process(table, evals=evals))
    assert status == "passed", finding and finding.title


def turns(make, length: int, count: int, slow: float = 0.0, apart: bool = False):
    """Two optimizers that step in turn, `length` steps each time; the first step of a turn takes `slow` s longer."""
    order = [(turn % 2, step) for turn in range(count) for step in range(length)]
    time = np.cumsum([0.01 + (slow if step == 0 else 0.0) for _, step in order])
    last, taken = {}, []
    for (which, _), end in zip(order, time.tolist(), strict=True):
        taken.append(end - last[which] if which in last else None)
        last[which] = end
    table = steps(make, len(order), seconds=taken, time=time.tolist(), loader_first=[False] * len(order))
    table["optimizer"] = [which for which, _ in order]
    optimizers = [{"optimizer": which, "name": "SGD", "device": "cpu", "parameters": 2} for which in (0, 1)]
    links = [{"optimizer": which, "model": which if apart else 0} for which in (0, 1)]
    links += [] if apart else [{"optimizer": 0, "other": 1}]
    return make.process(table, evals={}, optimizers=optimizers, more={"links": links})


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("length", "slow", "status"), [(100, 0.0, "passed"), (100, 0.8, "fired"), (1, 0.0, "passed")])
def test_the_turn_of_another_optimizer_is_no_slow_step(make, apart: bool, length: int, slow: float, status) -> None:
    process = turns(make, length, 1600 // length, slow, apart)
    assert len(process.trainings) == 1 + apart
    found, reason, finding = make.check("slow-steps", process)
    assert found == status, reason
    if finding:
        assert "every 200 steps" in finding.summary, "the steps of both are counted"
        assert finding.cost.seconds == pytest.approx(7 * 2 * slow, rel=0.1)
