"""throughput-decay: steps that take longer and longer, and why they may do so rightly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.computed.throughput import pace
from tracelyze.analyzers.rules.throughput.throughput_decay import processor_time

Row = dict[str, Any]
COUNT = 600
LOOKS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 300, 420, 450, 500, 550)


def slower(make: Any, factor: float = 4.0, start: float = 0.02, count: int = COUNT, **more: Any) -> Row:
    """Steps whose time climbs evenly to `factor` times what it was."""
    noise = np.random.default_rng(1).normal(1, 0.03, count)
    seconds = start * np.linspace(1, factor, count) * noise
    steps = make.steps(count) | {"seconds": seconds.tolist(), "time": np.cumsum(seconds).tolist()}
    return steps | {"loader_first": [False] * count} | more


def tables(grows: str = "", looks: tuple[int, ...] = LOOKS) -> dict[str, list[Row]]:
    """Looks at batches, modules and weights; what is named `grows` with the steps."""

    def size(name: str, step: int) -> int:
        return 64 + step if name == grows else 64

    return {
        "batches": [
            {"step": step, "batch": step, "loader": 0, "epoch": 0, "trained": True, "field": "0",
             "shape": f"32x{size('length', step)}"}
            for step in looks
        ],
        "activations": [
            {"step": step, "time": 0.1 * step, "order": order, "module": str(order), "kind": "Linear", "alert": False,
             "elements": 32 * size("outputs", step)}
            for step in looks for order in range(1, size("calls", step) // 16)
        ],
        "parameters": [
            {"step": step, "time": 0.1 * step, "parameter": "w", "elements": size("weights", step)} for step in looks
        ],
    }  # fmt: skip


def sampled(steps: Row, place: str = "/home/a/train.py:40 ranks", **more: Any) -> Row:
    """What the sampler saw: the program in one place, and nobody in its way."""
    times = steps["time"][::10]
    return {"time": times, "delayed": [0.0] * len(times), "innermost": [place] * len(times)} | more


def judge(make: Any, steps: Row, more: dict[str, list[Row]] | None = None, **rest: Any) -> Any:
    rest = {"samples": sampled(steps)} | rest
    return make.check("throughput-decay", make.process(steps, more=tables() if more is None else more, **rest))


def test_steps_that_get_slower(make) -> None:
    status, _, finding = judge(make, slower(make))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.cost.seconds == pytest.approx(13, rel=0.2)
    assert "Neither batches nor module calls grew" in finding.summary
    waits = [0.9 * value for value in slower(make)["seconds"]]
    finding = judge(make, slower(make, loader_wait=waits, loader_batches=[1] * COUNT))[2]
    assert finding.location.line == 30
    assert "waiting for a batch" in finding.summary


@pytest.mark.parametrize("grows", ["length", "outputs", "calls", "weights"])
def test_steps_that_have_more_to_do(make, grows) -> None:
    status, reason, _ = judge(make, slower(make), tables(grows))
    assert status == "passed"
    assert "have more to do" in reason


@pytest.mark.parametrize("column", ["batch_size", "backwards", "loader_batches", "parameters"])
def test_steps_that_take_in_more(make, column) -> None:
    growing = {column: [4 + index // 50 for index in range(COUNT)]}
    status, reason, _ = judge(make, slower(make, **growing))
    assert status == "passed"
    assert "have more to do" in reason


def test_episodes_that_get_longer(make) -> None:
    calls = [
        {"step": step, "batch": step + step**2 // 20, "trained": True, "field": "0", "shape": "4"} for step in LOOKS
    ]
    status, reason, _ = judge(make, slower(make), {"batches": calls})
    assert status == "passed"
    assert "forwards per step" in reason


@pytest.mark.parametrize(("growing", "status"), [(False, "fired"), (True, "passed")])
def test_evaluations_at_even_intervals_are_no_work_that_grows(make, growing: bool, status: str) -> None:
    """By chance one more of them falls into the last third of the steps: two against three."""
    after = [60 * (index + 1) for index in range(7)]
    after = [int(COUNT * step / 420) - 1 for step in after for _ in range(2)]
    forwards = [1 + index if growing else 1 for index in range(14)]
    evals = {"after_step": after, "forwards": forwards}
    assert judge(make, slower(make), evals=evals)[0] == status


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.3])
def test_an_even_or_falling_pace(make, factor) -> None:
    assert judge(make, slower(make, factor))[0] == "passed"


def test_two_levels_and_buffers_that_fill(make) -> None:
    for shape in (np.where(np.arange(COUNT) < 300, 1, 3), np.minimum(1 + np.arange(COUNT) / 60, 4)):
        seconds = (0.02 * shape * np.random.default_rng(2).normal(1, 0.03, COUNT)).tolist()
        assert judge(make, slower(make) | {"seconds": seconds})[0] == "passed"


def test_little_time_is_lost(make) -> None:
    assert judge(make, slower(make, 2.0, start=0.001))[0] == "passed"


def test_what_others_took(make) -> None:
    steps = slower(make)
    ends, seconds = np.array(steps["time"]), np.array(steps["seconds"])
    over = np.cumsum(seconds - 0.02).tolist()
    evals = {
        "time_start": (ends - seconds + 0.02).tolist(),
        "time_end": ends.tolist(),
        "after_step": list(range(COUNT)),
        "forwards": [1] * COUNT,
    }
    assert judge(make, steps, evals=evals)[0] == "passed"  # evaluations that take longer and longer
    assert judge(make, steps | {"overhead": (seconds - 0.02).tolist()})[0] == "passed"
    assert "other programs" in judge(make, steps, samples=sampled(steps, delayed=over[::10]))[1]
    little = [0.001 * index for index in range(0, COUNT, 10)]
    assert judge(make, steps, samples=sampled(steps, delayed=little))[0] == "fired"


@pytest.mark.parametrize(
    ("factor", "longest", "place", "status"),
    [
        (10.0, 1, "/home/a/train.py:9 sample", "fired"),
        (40.0, 2, "/home/a/train.py:9 sample", "fired"),
        (10.0, 10, "/home/a/train.py:9 sample", "passed"),  # rollouts that get longer
        (2.0, 1, "/home/a/train.py:9 sample", "passed"),  # an environment that is slower for a better policy
        (10.0, 1, "torch/nn/modules/rnn.py:900 forward", "passed"),  # a model that reads ever more of an episode
    ],
)
def test_what_lies_between_the_calls_of_a_model_that_acts(make, factor, longest, place, status) -> None:
    steps = slower(make, factor)
    ends, seconds = np.array(steps["time"]), np.array(steps["seconds"])
    evals = {
        "time_start": (ends - seconds + 0.002).tolist(),
        "time_end": (ends - 0.002).tolist(),
        "after_step": list(range(COUNT)),
        "forwards": [10 + 10 * (longest - 1) * index // COUNT for index in range(COUNT)],
    }
    samples = sampled(steps, place) | {"site": [9.0] * len(steps["time"][::10])}
    text = {"role": "sampled", "file": "train.py", "line": 9, "function": "sample"}
    sites = [{"site": 9, **text, "source": "states = np.array(self.memory)"}]
    found, _, finding = judge(make, steps, evals=evals, samples=samples, sites=sites)
    assert found == status
    if finding is not None:
        assert finding.location.line == 9
        assert "calls of the model grew far less" in finding.summary


def test_a_first_pass_may_be_in_order_of_size(make) -> None:
    waits = [0.9 * value for value in slower(make)["seconds"]]
    loaders = [{"loader": 0, "dataset": "Files", "iterable": False, "length": COUNT, "num_workers": 0}]
    status, reason, _ = judge(make, slower(make, loader_wait=waits), loaders=loaders)
    assert (status, "in order of size" in reason) == ("passed", True)


def test_a_loader_hides_how_often_a_step_calls_the_model(make) -> None:
    steps = slower(make)
    for samples in ({}, sampled(steps, "torch/nn/modules/linear.py:134 forward")):
        assert "how often a step calls the model" in judge(make, steps, samples=samples)[1]
    calls = [row | {"loader": None, "batch": row["step"]} for row in tables()["batches"]]
    assert judge(make, steps, tables() | {"batches": calls}, samples={})[0] == "fired"
    cuda = [{"optimizer": 0, "name": "SGD", "device": "cuda:0"}]
    assert judge(make, steps, optimizers=cuda)[0] == "skipped"
    assert judge(make, steps | {"model_calls": [1] * COUNT}, samples={})[0] == "fired"
    longer = [2 + index // 20 for index in range(COUNT)]
    assert "forwards per step grew" in judge(make, steps | {"model_calls": longer}, samples={})[1]


def test_what_cannot_be_told(make) -> None:
    assert "more to do is not known" in judge(make, slower(make), {})[1]
    assert "more to do is not known" in judge(make, slower(make), tables(looks=LOOKS[:8]))[1]
    assert judge(make, slower(make, count=60))[0] == "skipped"
    assert judge(make, slower(make) | {"optimizer": [0, 1] * (COUNT // 2)})[0] == "skipped"
    lbfgs = [{"optimizer": 0, "name": "LBFGS", "device": "cpu"}]
    assert judge(make, slower(make), optimizers=lbfgs)[0] == "passed"


def test_a_short_run_whose_steps_get_much_slower(make) -> None:
    count = 200
    taken = [0.0025 + 0.0121 * index / count for index in range(count)]
    steps = make.steps(count) | {"seconds": taken, "time": np.cumsum(taken).tolist(), "overhead": [0.0] * count}
    steps |= {"loader_first": [False] * count}
    looks = tables(looks=(0, 1, 10, 50, 100, 150, 190))
    assert judge(make, steps, looks, samples={}, evals={})[0] == "fired"
    assert judge(make, steps, tables("length", (0, 1, 10, 50, 100, 150, 190)), samples={})[0] == "passed"


def disturbed(make: Any, factor: float, calls: int = 1, count: int = 900, events: tuple[Row, ...] = ()) -> Any:
    """Steps that need `factor` times as much of the processor in the end, while other programs come and go."""
    random = np.random.default_rng(4)
    needed = 0.004 * np.linspace(1, factor, count) * random.normal(1, 0.1, count)
    others = np.repeat(random.choice([1.0, 2.5, 4.0], count // 45), 45)  # programs that take their part, for a while
    seconds = needed * others * random.gamma(4, 0.25, count)
    ends, used = np.cumsum(seconds), np.cumsum(needed)
    at = np.arange(0.0, float(ends[-1]), float(ends[-1]) / 25)
    samples = {"time": at.tolist(), "cpu_seconds": np.interp(at, ends, used).tolist(), "delayed": [0.0] * len(at)}
    steps = make.steps(count) | {"seconds": seconds.tolist(), "time": ends.tolist(), "loader_first": [False] * count}
    steps |= {"model_calls": [calls + index // 100 * (calls - 1) for index in range(count)], "overhead": [0.0] * count}
    more = tables(looks=(*LOOKS, 700, 800)) | {"events": list(events)}
    return judge(make, steps, more, samples=samples, evals={})


def test_processor_time_that_climbs_on_a_busy_machine(make) -> None:
    status, _, finding = disturbed(make, 4.0)
    assert finding.evidence[0].value < 4.5
    assert (status, finding.confidence) == ("fired", "likely")
    assert "of processor time at first" in finding.title
    assert finding.cost.of == "the processor time of all steps"
    for factor in (1.0, 2.0, 0.5):
        assert disturbed(make, factor)[0] == "passed"
    assert "have more to do" in disturbed(make, 4.0, calls=2)[1]


@pytest.mark.parametrize(
    ("shape", "status"),
    [
        (np.linspace(1, 11, COUNT) * np.repeat([1, 1.6, 0.9, 1.3, 1.7, 1.2], COUNT // 6), "fired"),  # a busy machine
        (1 + 10 * np.linspace(0, 1, COUNT) ** 4, "fired"),  # faster and faster
        (np.repeat([1, 1.2, 1, 6, 1, 1.1], COUNT // 6), "passed"),  # a stretch that others took
        (np.where(np.arange(COUNT) < 420, 1, 9), "passed"),  # a jump
        (1 + 8 * np.minimum(np.arange(COUNT) / 200, 1), "passed"),  # a buffer that fills
    ],
)
def test_a_steep_climb_need_not_be_even(make, shape, status) -> None:
    seconds = (0.02 * shape * np.random.default_rng(2).normal(1, 0.05, COUNT)).tolist()
    steps = slower(make) | {"seconds": seconds, "time": np.cumsum(seconds).tolist()}
    assert judge(make, steps)[0] == status


def hooks(*counts: int) -> tuple[Row, ...]:
    """Looks at the hooks of the modules, with their number at each."""
    return tuple(
        {"time": float(at), "step": 40 * at, "kind": "hooks", "value": count} for at, count in enumerate(counts)
    )


def test_hooks_that_pile_up_tell_a_smaller_climb_from_a_busy_machine(make) -> None:
    """Twice the processor time, or an uneven climb by as much: machines do such things, too, but hooks were seen to
    grow in number. Hooks alone, without steps that get slower, are no finding."""
    piled = hooks(4, 80, 250, 640)
    status, _, finding = disturbed(make, 2.6, events=piled)
    assert status == "fired"
    assert "4 before the first step, 640 at the end" in finding.summary
    assert disturbed(make, 2.6, events=hooks(4, 5, 6, 7))[0] == "passed"
    assert disturbed(make, 1.0, events=piled)[0] == "passed"
    shape = np.repeat([1, 1, 1.2, 1.1, 1.5, 1.4, 1.7, 1.6, 2.3, 2.2, 2.5, 2.4], COUNT // 12)
    seconds = (0.02 * shape * np.random.default_rng(2).normal(1, 0.05, COUNT)).tolist()
    steps = slower(make) | {"seconds": seconds, "time": np.cumsum(seconds).tolist()}
    assert judge(make, steps, {**tables(), "events": list(piled)})[0] == "fired"
    assert judge(make, steps, {**tables(), "events": list(hooks(4, 4))})[0] == "passed"


def test_hooks_that_a_loop_registers_are_all_kept(make) -> None:
    source = "net.get_submodule(name).register_forward_hook(save(name))"
    place = {"site": 9, "role": "module-hook", "file": "train.py", "line": 12, "function": "features", "source": source}
    place |= {"excerpt_line": 11, "excerpt": f"    for name in layers:\n        {source}\n    net(x)"}
    more = {**tables(), "events": list(hooks(4, 80, 250, 640))}
    _, _, finding = judge(make, slower(make), more, sites=[place])
    assert finding.fix_code.startswith(f"handles = []\nfor name in layers:\n    handles.append({source})\n")
    assert finding.fix_code.endswith("for handle in handles:\n    handle.remove()")


@pytest.mark.parametrize(("share", "status"), [(np.full(COUNT, 0.55), "fired"), (np.linspace(0, 0.9, COUNT), "passed")])
def test_longer_steps_meet_other_programs_for_longer(make, share, status) -> None:
    """Half of the processors is lost from start to end; or ever more of them, and nothing else lengthens the steps."""
    steps = slower(make, 10.0)
    begun = np.concatenate(([0.0], np.cumsum(np.asarray(steps["seconds"]) * share)))
    delayed = np.interp(steps["time"][::10], [0.0, *steps["time"]], begun).tolist()
    samples = sampled(steps, delayed=delayed, cpu_seconds=[0.0] * len(delayed))
    assert judge(make, steps, samples=samples)[0] == status


@pytest.mark.parametrize(
    ("counts", "registered"), [((3, 6, 12, 24, 33), True), ((3, 6), False), ((30, 31, 32, 33), False)]
)
def test_hooks_that_are_registered_again_and_again(make, counts: tuple[int, ...], registered: bool) -> None:
    """They are named where they grew in number look by look, and only then."""
    hooks = [{"time": float(at), "step": 40 * at, "kind": "hooks", "value": count} for at, count in enumerate(counts)]
    text = {"role": "module-hook", "file": "train.py", "line": 12, "function": "attach"}
    sites = [{"site": 9, **text, "source": "module.register_forward_hook(probe)"}]
    _, _, finding = judge(make, slower(make), {**tables(), "events": hooks}, sites=sites)
    assert ("number of hooks" in finding.summary) == registered
    assert ((finding.location and finding.location.line) == 12) == registered
    assert ("handle.remove()" in finding.fix_code) == registered


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (["scope.attach(model)", "loss.backward()", "optimizer.step()"], 22),
        (["attach(model)", "# attach(model) again", "loss.backward()"], 22),
        (["scope.attach(model)", "scope.attach(other)", "loss.backward()"], 12),  # which of them is not known
        (["scope.update(model)", "loss.backward()", "optimizer.step()"], 12),
    ],
)
def test_hooks_whose_function_the_step_calls(make, body: list[str], line: int) -> None:
    """The line of the step that calls it is to move; without one, the line that registers a hook keeps its handle."""
    hooks = [{"time": float(at), "step": 40 * at, "kind": "hooks", "value": 3 * at} for at in range(1, 9)]
    place = {"file": "train.py", "excerpt_line": 12}
    source = "module.register_forward_hook(probe)"
    sites = [place | {"site": 9, "role": "module-hook", "line": 12, "function": "attach", "source": source}]
    sites[0]["excerpt"] = f"    {source}"
    text = "\n".join(["def step(scope, model):", *(f"    {one}" for one in body), ""])
    at = next(number for number, one in enumerate(body, 22) if "backward" in one)
    sites.append(
        place | {"site": 1, "role": "backward", "line": at, "function": "step", "source": "loss.backward()"}
        | {"excerpt_line": 21, "excerpt": text}
    )  # fmt: skip
    _, _, finding = judge(make, slower(make), {**tables(), "events": hooks}, sites=sites)
    assert finding.location.line == line
    assert ("line 22 calls `attach`" in finding.summary) == (line == 22)
    expected = f"{body[0]}  # once, above the loop" if line == 22 else f"handle = {source}\n"
    assert expected in finding.fix_code


def test_processor_time_that_climbs_faster_and_faster_begins_above_its_line(make) -> None:
    count = 900
    needed = 0.004 * (1 + 9 * np.linspace(0, 1, count) ** 2)
    others = np.repeat(np.random.default_rng(4).choice([1.0, 2.5, 4.0], 20), 45)
    ends, used = np.cumsum(needed * others), np.cumsum(needed)
    at = np.arange(0.0, float(ends[-1]), float(ends[-1]) / 25)
    samples = {"time": at.tolist(), "cpu_seconds": np.interp(at, ends, used).tolist(), "delayed": [0.0] * len(at)}
    steps = make.steps(count) | {"seconds": (needed * others).tolist(), "time": ends.tolist()}
    steps |= {"loader_first": [False] * count, "model_calls": [1] * count, "overhead": [0.0] * count}
    climb = processor_time.climb(make.process(steps, samples=samples).longest, np.ones(count, bool), tau=0.85)
    assert climb.floor_start >= 0.004


REPORT = """def report(self, step, logits, label):
    self.auroc.update(logits, label)
    auc = self.auroc.compute().item()
    if step % self.every == 0:
        print(f"auroc {auc:.4f}")"""


@pytest.mark.parametrize(
    ("text", "computed", "code"),
    [
        (REPORT, True, "if step % self.every == 0:\n    auc = self.auroc.compute().item()  # line 3 moves to here"),
        (REPORT.replace("if step", "if auc > 0.9 and step"), True, ""),
        (REPORT + "\n        self.auroc.reset()", False, ""),
        (
            REPORT.replace("self.auroc.compute().item()", "ranked(torch.cat(self.scores))"),
            False,
            "if step % self.every == 0:\n    auc = ranked(torch.cat(self.scores))  # line 3 moves to here",
        ),
        (REPORT.replace("auc =", "auc = best =").replace("self.auroc.compute().item()", "ranked(self.x)"), False, ""),
        (REPORT.replace("self.auroc.compute().item()", "ranked(self.x)").replace("auc:.4f", "step"), False, ""),
        (
            REPORT.replace("if step", "if auc").replace("self.auroc.compute().item()", "sum(self.x)"),
            False,
            "mean = total",
        ),
    ],
)
def test_a_line_that_goes_over_everything_so_far(make, text: str, computed: bool, code: str) -> None:
    """A metric that is computed at every step; an example of a mean fits where the line takes one."""
    steps = slower(make)
    samples = sampled(steps, site=[1] * len(steps["time"][::10]))
    status, _, finding = judge(make, steps, samples=samples, sites=sites_of(text, sampled="auc ="))
    assert (status, finding.location.line) == ("fired", 3)
    assert ("self.auroc.compute() goes over all" in finding.fix) == computed
    assert code in finding.fix_code
    assert bool(finding.fix_code) == bool(code)


@pytest.mark.parametrize(
    ("behind", "line"),
    [
        (["shown = meter.total()", "if step % 50 == 0:", "    print(shown)"], 23),
        (["if step % 50 == 0:", "    print(meter.total())"], 12),  # not at every step: something else may call it, too
        (["low, high = meter.total(), other.total()", "one = meter.total()"], 12),  # of two lines either
        (["meter.update(loss)"], 12),
    ],
)
def test_the_line_of_the_loop_that_calls_what_goes_over_everything(make, behind: list[str], line: int) -> None:
    text = "\n".join(["for step in steps:", "    loss.backward()", *(f"    {one}" for one in behind)])
    rows = [
        {"site": 1, "role": "backward", "line": 22, "function": "main", "source": "loss.backward()"}
        | {"excerpt_line": 21, "excerpt": text},
        {"site": 9, "role": "sampled", "line": 12, "function": "total", "source": "return sum(self.seen)"}
        | {"excerpt_line": 12, "excerpt": "        return sum(self.seen)"},
    ]  # fmt: skip
    steps = slower(make)
    samples = sampled(steps, site=[9] * len(steps["time"][::10]))
    finding = judge(make, steps, samples=samples, sites=[row | {"file": "train.py"} for row in rows])[2]
    assert (finding.location.line, finding.seen_at is not None) == (line, line == 23)
    assert ("Line 23 calls that total() at every step." in finding.summary) == (line == 23)
    if line == 23:
        assert finding.fix_code == "if step % 50 == 0:\n    shown = meter.total()  # line 23 moves to here"


def test_steps_of_which_none_is_judged_did_not_get_slower() -> None:
    """Those of a second-order optimizer, say, each of which takes another number of calls: numpy would warn of them."""
    seconds, none = np.linspace(1, 2, 6), np.zeros(6, dtype=bool)
    assert (pace.times_longer(seconds, none), pace.increase(seconds, none)) == (1.0, 0.0)
    assert (pace.times_longer(seconds, ~none), pace.increase(seconds, ~none)) == pytest.approx((1.9 / 1.1, 0.8))
