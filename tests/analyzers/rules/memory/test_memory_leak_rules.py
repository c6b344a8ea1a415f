"""memory-leak and host-memory-leak: what grows for good, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest

COUNT = 400


def test_memory_leak_of_graphs(make) -> None:
    steps = make.steps() | {"live_graphs": list(range(1, COUNT + 1))}
    _, _, finding = make.check("memory-leak", make.process(steps))
    assert (finding.confidence, finding.location.line) == ("certain", 41)
    assert "loss.detach()" in finding.fix


def test_a_leak_of_graphs_says_what_its_charts_show(make) -> None:
    """A second call of the model behind the optimizer's step: its output is kept, and the first step lacks it."""
    resident = [3e8 + 2e6 * max(0, step - 1) for step in range(COUNT)]
    steps = make.steps() | {"live_graphs": list(range(1, COUNT + 1)), "model_calls": [1] + [2] * (COUNT - 1)}
    _, _, finding = make.check("memory-leak", make.process(steps | {"host_rss": resident}))
    values = {one.name: one.value for one in finding.evidence}
    assert values["autograd graphs kept alive"] == COUNT
    assert "From step 1 on" in finding.summary
    since = next(name for name in values if name.startswith("growth from step "))
    step = int(since.split()[3])
    assert f"MiB since step {step}." in finding.summary
    assert values[since] == pytest.approx((resident[-1] - resident[step - 1]) / 2**20, rel=0.02)
    late = make.steps() | {"live_graphs": [0] + [1] * 99 + list(range(2, 302))}
    assert make.check("memory-leak", make.process(late))[2].first_step == 100


def test_memory_leak_of_graphs_until_the_end_of_each_epoch(make) -> None:
    steps = make.steps() | {"live_graphs": [index % 100 for index in range(COUNT)]}
    assert make.check("memory-leak", make.process(steps))[0] == "fired"
    held = [index if index < 150 else index - 100 for index in range(COUNT)]  # a sum that outlives its epoch
    found = make.check("memory-leak", make.process(make.steps() | {"live_graphs": held}))[2]
    assert f"{max(held)} autograd graphs" in found.title
    lasting = make.steps() | {"live_graphs": [min(index, 60) if index < 99 else 1 for index in range(COUNT)]}
    assert make.check("memory-leak", make.process(lasting))[0] == "passed"  # a start that was let go of
    windows = make.steps() | {"live_graphs": [index % 10 for index in range(COUNT)]}
    assert make.check("memory-leak", make.process(windows))[0] == "passed"


def test_what_is_let_go_of_in_each_epoch_was_memory_until_then(make) -> None:
    """The process keeps what it once had, so that its memory climbs in the first epoch alone."""
    graphs = [index % 100 for index in range(COUNT)]
    for each, said in ((2e6, "Host memory grew by 189 MiB from step 1 to step 100."), (1e4, "is small so far")):
        resident = [3e8 + each * min(index, 99) for index in range(COUNT)]
        steps = make.steps() | {"live_graphs": graphs, "host_rss": resident}
        assert said in make.check("memory-leak", make.process(steps))[2].summary


def test_longer_roll_outs_keep_the_graphs_of_one_step(make) -> None:
    calls = [4 + index // 20 for index in range(COUNT)]  # of a recurrent cell, which the loop calls by itself
    for held in (calls, [2 * count for count in calls]):  # the last loss, and that of the step before
        steps = make.steps() | {"model_calls": calls, "live_graphs": held}
        assert make.check("memory-leak", make.process(steps))[0] == "passed"
    steps = make.steps() | {"model_calls": calls, "live_graphs": np.cumsum(calls).tolist()}
    assert make.check("memory-leak", make.process(steps))[0] == "fired"


def test_memory_leak_of_the_device(make) -> None:
    allocated = (2e9 + 5e6 * np.arange(COUNT)).tolist()
    facts = {"device": {"type": "cuda", "memory_bytes": 8e9}}
    cuda = [{"optimizer": 0, "name": "SGD", "device": "cuda:0", "dtype": "float32"}]
    process = make.process(make.steps() | {"device_allocated": allocated}, facts=facts, optimizers=cuda)
    _, _, finding = make.check("memory-leak", process)
    assert (finding.severity, finding.confidence) == ("critical", "likely")
    values = {evidence.name: evidence.value for evidence in finding.evidence}
    assert values["growth of device memory"] == pytest.approx(5e6 / 2**20, rel=0.01)
    assert values["time to exhaustion"] == pytest.approx((8e9 - 4e9) / 5e6 * 0.05, rel=0.1)


@pytest.mark.parametrize(
    "rss",
    [
        np.full(COUNT, 500e6),
        500e6 + 300e6 * np.minimum(1, np.arange(COUNT) / 200),  # replay buffer that fills, then flat
        500e6 + 50e6 * np.log1p(np.arange(COUNT)),  # warm-up
        500e6 + 300e6 * ((np.arange(COUNT) % 37) / 37),  # sawtooth of batch shapes
        500e6 + 10e3 * np.arange(COUNT),  # 4 MB in all
    ],
)
def test_memory_leak_is_silent(make, rss) -> None:
    process = make.process(make.steps() | {"host_rss": rss.astype(int).tolist()})
    assert make.check("memory-leak", process)[0] == make.check("host-memory-leak", process)[0] == "passed"


def test_memory_leak_needs_fifty_steps(make) -> None:
    short = make.steps(30) | {"host_rss": [int(5e8 + 1e7 * i) for i in range(30)]}
    assert make.check("memory-leak", make.process(short, evals={}))[0] == "skipped"
