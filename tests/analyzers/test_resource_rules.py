"""Rules about precision, memory and ends, with their healthy look-alikes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.computed.crashes import exceptions
from tracelyze.analyzers.evidence.settings import constants
from tracelyze.analyzers.recorded import exits
from tracelyze.diagnosis import Exit
from tracelyze.testing import SITES

COUNT = 400


def scaled(scale: list[float]) -> dict[str, list[object]]:
    """Scale by step, and the skips that its falls mean."""
    falls = [later < now for now, later in itertools.pairwise(scale)]
    return {"scale": scale, "skipped": [*falls, False]}


def falling(start: float, times: int) -> list[float]:
    return [start / 2**index for index in range(times)]


def test_fp16_overflow_when_the_scale_collapses(make) -> None:
    steps = make.steps() | scaled([1024.0] * 200 + falling(1024, 30) + [2.0**-19] * 170)
    _, _, finding = make.check("fp16-overflow", make.process(steps))
    assert (finding.severity, finding.confidence) == ("critical", "certain")
    assert finding.first_step == pytest.approx(201, abs=2)


def test_fp16_overflow_when_many_steps_are_skipped(make) -> None:
    steps = make.steps() | {"scale": [1024.0] * COUNT, "skipped": [i >= 200 and i % 4 == 0 for i in range(COUNT)]}
    assert make.check("fp16-overflow", make.process(steps))[0] == "fired"


@pytest.mark.parametrize("device", ["cpu", "cuda:1"])
@pytest.mark.parametrize("forward", [True, False])
def test_fp16_overflow_has_a_fix_for_where_it_overflows(make, device, forward) -> None:
    steps = make.steps() | {"scale": [2.0**-19] * COUNT, "skipped": [True] * COUNT}
    steps |= {"loss": [float("inf")] * COUNT} if forward else {}
    optimizers = [{"optimizer": 0, "name": "SGD", "device": device, "dtype": "float32", "parameters": 8}]
    _, _, finding = make.check("fp16-overflow", make.process(steps, optimizers=optimizers))
    assert finding.summary.startswith("Every step overflowed")
    assert f'autocast("{device[:4].rstrip(":")}"' in finding.fix_code
    assert ("clip gradients" in finding.fix) is not forward, "no clipping helps a loss that is not finite"


def test_fp16_overflow_signature_from_the_scale_alone(make) -> None:
    columns = scaled([1024.0] * 100 + falling(1024, 30) + [2.0**-19] * 270)
    log = {"step": list(range(1, COUNT + 1)), "scale": columns["scale"]}
    _, _, finding = make.check("fp16-overflow", make.process(log, evals={}, optimizers=[]))
    assert finding.confidence == "likely"


@pytest.mark.parametrize(
    "scale",
    [
        falling(65536, 12) + [32.0] * 388,  # the scaler finds its level
        [65536.0] * COUNT,
        [[1024.0, 2048.0][index % 40 == 0] for index in range(COUNT)],  # growth that is taken back: probing
    ],
)
def test_fp16_overflow_is_silent(make, scale) -> None:
    assert make.check("fp16-overflow", make.process(make.steps() | scaled(scale)))[0] == "passed"


def bouncing(interval: int) -> list[float]:
    """A scale that grows after so many good steps, and overflows each time."""
    period = [1024.0] * interval + [2048.0]
    return (period * COUNT)[:COUNT]


@pytest.mark.parametrize("interval", [1, 4])
def test_fp16_overflow_of_a_scale_that_grows_too_often(make, interval) -> None:
    """Each fall takes back a growth, which is the scaler's search, and costs a fifth of the steps or more."""
    call = 'self.scaler = GradScaler("cuda", growth_interval=opt.every)'
    rows = [
        {"site": 30, "role": "scaler-text", "file": "train.py", "line": 61, "function": "__init__", "source": call},
        {"site": 31, "role": "constant", "file": "train.py", "line": 16, "function": "Options", "name": "every"}
        | {"own_name": "every", "value": str(interval), "source": f"every: int = {interval}"}
        | {"excerpt": f"    every: int = {interval}", "excerpt_line": 16},
    ]
    _, _, finding = make.check(
        "fp16-overflow", make.process(make.steps() | scaled(bouncing(interval)), sites=[*SITES, *rows])
    )
    assert "grows too often" in finding.title
    assert finding.severity == "warning"
    moved = constants.at_its_constant(finding, make.process(sites=[*SITES, *rows]))
    assert (moved.location.line, moved.diff.added) == (16, ["    every: int = 2000"])


def test_fp16_overflow_is_another_one_where_no_interval_explains_it(make) -> None:
    grows = make.steps() | scaled(bouncing(39))
    assert make.check("fp16-overflow", make.process(grows))[0] == "passed"
    broken = make.steps() | scaled(bouncing(1))
    lost = [float("inf") if skip else 1.0 for skip in broken["skipped"]]
    status, _, finding = make.check("fp16-overflow", make.process(broken | {"loss": lost}))
    assert status == "passed" or "grows too often" not in finding.title, "the loss itself is no number"
    falls = make.steps() | scaled([1024.0] * 200 + falling(1024, 30) + [2.0**-19] * 170)
    assert "grows too often" not in make.check("fp16-overflow", make.process(falls))[2].title


def test_fp16_overflow_is_skipped_without_a_scaler(make) -> None:
    assert make.check("fp16-overflow", make.process())[0] == "skipped"


def test_fp16_without_scaler(make) -> None:
    half = make.steps() | {"autocast": [1] * COUNT}
    status, _, finding = make.check("fp16-without-scaler", make.process(half))
    assert finding.cost is None, "what is not lost to underflow is learned"
    assert (status, "small gradients can become zero" in finding.title) == ("fired", True)
    assert "keep the weights" not in finding.fix, "they are in float32 already"
    weights = [{"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float16"}]
    assert make.check("fp16-without-scaler", make.process(optimizers=weights))[0] == "fired"
    silent = [half | {"scale": [1024.0] * COUNT}, half | {"loss_divisor": [1 / 1024] * COUNT}, make.steps()]
    silent.append(make.steps() | {"autocast": [2] * COUNT})
    for steps in silent:
        assert make.check("fp16-without-scaler", make.process(steps))[0] == "passed"
    off = {"signals": {"loss_scale": {"columns": ["steps.scale"], "reason": "too slow"}}}
    assert make.check("fp16-without-scaler", make.process(half, facts=off))[0] == "skipped"


def sixteen(*lines: str, function: str = "main") -> list[dict[str, Any]]:
    place = {"role": "sixteen", "file": "train.py"}
    return [
        {**place, "site": 70 + n, "line": 80 + 20 * n, "function": function if n == 0 else f"f{n}", "source": line,
         "excerpt": f"    {line}", "excerpt_line": 80 + 20 * n}
        for n, line in enumerate(lines)
    ]  # fmt: skip


REGION = "with torch.autocast('cpu', dtype=torch.float16):"


@pytest.mark.parametrize(
    ("lines", "line", "edited"),
    [
        ([REGION], 80, "    with torch.autocast('cpu', dtype=torch.bfloat16):"),
        ([REGION, REGION], 80, "    with torch.autocast('cpu', dtype=torch.bfloat16):"),  # the other one validates
        (["half = torch.float16"], 80, None),
        (["return x.half()"], 41, None),  # of what, is not known
        (["with torch.autocast('cpu', torch.float16 if fp16 else torch.bfloat16):"], 41, None),
        (["with torch.autocast('cpu', dtype=torch.bfloat16):"], 41, None),
    ],
)
def test_the_region_in_float16_is_the_line_to_change(make, lines: list[str], line: int, edited: str | None) -> None:
    half = make.steps() | {"autocast": [1] * COUNT}
    backward = {"site": 2, "role": "backward", "file": "train.py", "line": 41, "function": "main"}
    sites = [*sixteen(*lines), {**backward, "source": "loss.backward()"}]
    optimizer = {"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float32", "backward_site": 2}
    finding = make.check("fp16-without-scaler", make.process(half, sites=sites, optimizers=[optimizer]))[2]
    assert finding.location.line == line
    assert (finding.diff.added[0] if finding.diff else None) == edited
    there = make.process(half, sites=sites, optimizers=[optimizer | {"device": "cuda:0"}])
    assert make.check("fp16-without-scaler", there)[2].diff is None, "an older GPU computes bfloat16 slowly"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("self.scaler = GradScaler(enabled=dtype == 'half')", "self.scaler = GradScaler(enabled=True)"),
        ("scaler = torch.amp.GradScaler('cpu', enabled=use)", "scaler = torch.amp.GradScaler('cpu', enabled=True)"),
        ("scaler = torch.amp.GradScaler('cuda')", None),
        ("scaler = torch.amp.GradScaler('cuda', enabled=True)", None),
    ],
)
def test_a_scaler_that_is_told_not_to_be_enabled(make, line: str, shown: str | None) -> None:
    half = make.steps() | {"autocast": [1] * COUNT}
    row = {"site": 1, "role": "scaler-text", "file": "train.py", "line": 12, "function": "main", "source": line}
    finding = make.check("fp16-without-scaler", make.process(half, sites=[row]))[2]
    assert ("scaled no loss" in finding.summary, "no GradScaler was used" in finding.summary) == (
        shown is not None,
        shown is None,
    )
    if shown is not None:
        assert (finding.location.line, finding.fix_code, finding.diff) == (12, shown, None)
        assert "told not to be enabled, or is not used" in finding.summary
        scaled = row | {"site": 2, "role": "backward", "line": 30, "source": "scaler.scale(loss).backward()"}
        finding = make.check("fp16-without-scaler", make.process(half, sites=[row, scaled]))[2]
        assert "scaled no loss: its `enabled` was false." in finding.summary


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


def exception(name: str, text: str, step: int = 7) -> list[dict[str, object]]:
    return [{"kind": "exception", "name": name, "text": text, "step": step, "time": 1.0, "file": "train.py", "line": 9,
             "source": "loss.backward()"}]  # fmt: skip


CRASHES = {
    "scaler-without-step": "No inf checks were recorded prior to update.",
    "scaler-without-gradients": "No inf checks were recorded for this optimizer.",
    "batchnorm-single-value": "Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
    "backward-twice": "Trying to backward through the graph a second time (or directly access saved tensors)",
    "inplace-modification": "a variable needed for gradient computation has been modified by an inplace operation",
    "leaf-inplace": "a leaf Variable that requires grad is being used in an in-place operation.",
    "non-scalar-backward": "grad can be implicitly created only for scalar outputs",
    "no-grad-fn": "element 0 of tensors does not require grad and does not have a grad_fn",
    "fp16-weights-with-scaler": "Attempting to unscale FP16 gradients.",
    "marked-ready-twice": "Expected to mark a variable ready only once. This error is caused by one of the following",
    "unreduced-parameters": "Expected to have finished reduction in the prior iteration before starting a new one.",
    "unreduced-outputs": "Expected to have finished reduction in the prior iteration before starting a new one. "
    "Since `find_unused_parameters=True` is enabled, this likely means that not all `forward` outputs participate",
    "weights-only": "Weights only load failed. This file can still be loaded, to do so you have two options",
    "no-cuda-device": "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU",
    "device-mismatch": "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    "dtype-mismatch": "mat1 and mat2 must have the same dtype, but got Double and Float",
    "shape-mismatch": "mat1 and mat2 shapes cannot be multiplied (32x100 and 64x10)",
    "label-out-of-range": "Target 10 is out of bounds.",
    "cuda-error": "CUDA error: device-side assert triggered",
    "worker-killed": "DataLoader worker (pid 4711) is killed by signal: Killed. ",
    "collective-timeout": "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
    "state-dict": 'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight".',
}


@pytest.mark.parametrize("family", CRASHES)
def test_crash_families(make, family) -> None:
    known = exceptions.recognise("RuntimeError", CRASHES[family])
    assert known is not None
    assert known.name == family
    traceback = (
        f'Traceback (most recent call last):\n  File "train.py", line 9, in main\nRuntimeError: {CRASHES[family]}'
    )
    process = make.process(events=exception("RuntimeError", traceback), end=Exit("exception", 1))
    _, _, finding = make.check("crash", process)
    assert finding.title.startswith("RuntimeError: ")
    assert known.title in finding.summary
    assert (finding.first_step, finding.location.line) == (7, 9)
    assert finding.fix == known.fix


def test_the_title_of_a_crash_is_its_class_and_the_first_of_its_message() -> None:
    assert exceptions.title("KeyError", "'tok100'", " at train.py:26") == "KeyError: 'tok100' at train.py:26"
    assert exceptions.title("builtins.ValueError", "ValueError") == "ValueError"
    bounds = exceptions.title("IndexError", "Target 5 is out of bounds.", " at train.py:21")
    assert bounds == "IndexError: Target 5 is out of bounds at train.py:21"
    whole = "No inf checks were recorded prior to update."
    assert exceptions.title("AssertionError", whole, f" at {'x' * 30}.py:21") == f"AssertionError: {whole}"
    long = exceptions.title("RuntimeError", "word " * 100, " at train.py:26")
    assert len(long) <= 90
    assert long.endswith("… at train.py:26")
    assert len(exceptions.title("OSError", "x" * 300)) == len("OSError: ") + 80


def test_the_message_of_a_crash_does_not_repeat_its_class() -> None:
    text = "torch.distributed.DistNetworkError: DistNetworkError: The server socket has failed to listen."
    assert exceptions.message("DistNetworkError", text) == "The server socket has failed to listen."


UNREDUCED = """RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. \
This error indicates that your module has parameters that were not used in producing loss. You can enable unused \
parameter detection by passing `find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`, and by
making sure all `forward` function outputs participate in calculating loss.
Parameter indices which did not receive grad for rank 1: 2 3
 In addition, you can set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO or DETAIL"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("RuntimeError", "RuntimeError: first line\n and a hint\n", "RuntimeError: first line"),
        ("ValueError", ("ValueError: Caught ValueError in worker.\nOriginal Traceback (most recent call last):\n"
         '  File "a.py", line 1\nValueError: bad row'), "ValueError: bad row"),
        ("OddError", ("OddError: Caught BadRow in worker.\nOriginal Traceback (most recent call last):\n"
         '  File "a.py", line 1\nBadRow: bad row'), "OddError: BadRow: bad row"),
        ("KeyError", "'tok'", "KeyError: 'tok'"),
    ],
)  # fmt: skip
def test_the_end_of_a_run_tells_the_first_line_of_its_exception(name, text, said) -> None:
    """But for an exception of a worker, which begins with that of another process."""
    assert exits._message({"name": name, "text": f"Traceback (most recent call last):\n  File\n{text}"}) == said


def test_parameters_that_a_wrapper_waited_for_are_named_and_its_line_is_shown(make) -> None:
    """By the order of all of the model's parameters, where these were looked at; else their number alone."""

    def crashed(names: tuple[str, ...], wrappers: int = 1):
        rows = [{"step": 1, "optimizer": 0, "parameter": name, "grad_norm": 1.0} for name in names]
        process = make.process(
            events=exception("RuntimeError", UNREDUCED),
            end=Exit("exception", 1),
            models=[{"model": index, "name": "DistributedDataParallel", "parameters": 4} for index in range(wrappers)],
            sites=[{"site": 5, "file": "train.py", "line": 4, "source": "net = DDP(Net().to(rank), [rank])"}],
            more={
                "parameters": rows,
                "modules": [{"model": index, "module": "", "kind": "", "made_at": 5} for index in range(wrappers)],
            },
        )
        return make.check("crash", process)[2]

    finding = crashed(("body.weight", "body.bias", "head.depth.weight", "head.depth.bias"))
    assert "Here 2 tensors of head.depth got none." in finding.summary
    assert (finding.location.line, finding.seen_at.line) == (4, 9)
    assert finding.fix_code == "net = DDP(Net().to(rank), [rank], find_unused_parameters=True)"
    assert "not used in producing loss." in str(finding.evidence), "up to its last whole sentence"
    assert "and by" not in finding.summary
    assert "Here b and c.weight got none." in crashed(("a.weight", "a.bias", "b", "c.weight")).summary
    assert "Here 2 tensors got none." in crashed(("body.weight", "body.bias")).summary, "of four, two were looked at"
    assert crashed(("a", "b", "c", "d"), wrappers=2).location.line == 9


@pytest.mark.parametrize(
    ("marked", "table", "line"),
    [("self.pos_embedding(pos)", "self.pos_embedding", 4), ("self.words(ids)", "self.words", 9), ("", "embedding", 9)],
)
def test_the_table_that_a_traceback_marks(make, marked: str, table: str, line: int) -> None:
    """Of positions, which run past the end of their table, the line that makes that is shown."""
    source = "x = self.words(ids) + self.pos_embedding(pos)"
    marks = " " * (4 + source.find(marked)) + "^" * len(marked) if marked else ""
    text = f'Traceback (most recent call last):\n  File "/w/train.py", line 9, in forward\n    {source}\n{marks}\n'
    event = exception("IndexError", f"{text}IndexError: index out of range in self")[0] | {"source": source}
    rows = [("words", 6), ("pos_embedding", 5)]
    process = make.process(
        events=[event],
        end=Exit("exception", 1),
        sites=[
            {
                "site": 5,
                "role": "module",
                "file": "train.py",
                "line": 4,
                "source": "self.pos_embedding = Embedding(9)",
            },
            {"site": 6, "role": "module", "file": "train.py", "line": 3, "source": "self.words = Embedding(90, 8)"},
        ],
        more={"modules": [{"model": 0, "module": f"enc.{n}", "kind": "Embedding", "made_at": at} for n, at in rows]},
    )
    finding = make.check("crash", process)[2]
    assert f"< {table}.num_embeddings" in finding.fix_code
    assert finding.location.line == line
    assert ("positions of a sequence" in finding.fix) == (line == 4)


def test_an_unknown_crash_is_debugged_with_the_own_command(make) -> None:
    def fix_code(facts) -> str:
        process = make.process(events=exception("OddError", "OddError: 7"), end=Exit("exception", 1), facts=facts)
        return make.check("crash", process)[2].fix_code

    own = {"argv": ["train.py", "--name", "a b"], "world_size": 1}
    assert fix_code(own) == "python -m pdb -c continue train.py --name 'a b'"
    for not_to_be_typed in ({}, own | {"world_size": 2}, {"argv": ["-c"]}):
        assert fix_code(not_to_be_typed) == ""
    blocking = make.process(
        events=exception("RuntimeError", "RuntimeError: CUDA error: device-side assert triggered"),
        end=Exit("exception", 1), facts=own,
    )  # fmt: skip
    assert make.check("crash", blocking)[2].fix_code == "CUDA_LAUNCH_BLOCKING=1 python train.py --name 'a b'"


def test_a_crash_shows_the_loss_of_the_training_that_ran(make) -> None:
    steps = {"optimizer": [0] * 30 + [1] * 10, "loss": [float(one) for one in range(40)], "time": list(range(40))}
    optimizers = [{"optimizer": 0, "name": "SGD"}, {"optimizer": 1, "name": "SGD"}]
    process = make.process(
        steps=steps, optimizers=optimizers, events=exception("KeyError", "KeyError: 'tok100'", step=40),
        end=Exit("exception", 1),
    )  # fmt: skip
    (chart,) = make.check("crash", process)[2].charts
    assert chart.title == "Training loss of training 2 of 2"
    assert chart.lines[0].y[0] == 30.0


def test_crash_of_a_missing_gradient_and_in_a_worker() -> None:
    update = "Traceback:\n  File train.py, line 9\n    w = w - lr * w.grad\n"
    update += "TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'"
    assert exceptions.recognise("TypeError", update).name == "grad-is-none-in-update"
    other = "TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'"
    assert exceptions.recognise("TypeError", other) is None
    worker = (
        "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal Traceback...\nValueError: bad record"
    )
    assert exceptions.recognise("ValueError", worker).name == "worker-exception"
    assert exceptions.message("builtins.KeyError", "Traceback\nKeyError: 'label'") == "'label'"


@pytest.mark.parametrize(
    ("name", "text", "family"),
    [
        ("AttributeError", "  File t.py, line 9\n    out.loss.item()\n", None),  # a model that was given no labels
        ("AttributeError", "  File t.py, line 9\n    w.grad.item()\n", "grad-is-none"),
    ],
)
def test_none_is_a_gradient_where_the_line_asks_for_one(name: str, text: str, family: str | None) -> None:
    said = f"Traceback (most recent call last):\n{text}{name}: 'NoneType' object has no attribute 'item'"
    assert getattr(exceptions.recognise(name, said), "name", None) == family


@pytest.mark.parametrize(
    ("name", "text", "family"),
    [
        ("RuntimeError", "Error(s) in loading state_dict for Net:\n\tsize mismatch for fc.weight: ...", "state-dict"),
        ("TypeError", "'weights_only' is an invalid keyword argument for Unpickler()", None),
        ("_pickle.UnpicklingError", "Re-running `torch.load` with `weights_only` set to `False` ...", "weights-only"),
        ("requests.exceptions.ConnectionError", "(ConnectionResetError(104, 'Connection reset by peer'))", None),
        ("ConnectionResetError", "[Errno 104] Connection reset by peer", None),
        ("torch.distributed.DistNetworkError", "Connection reset by peer", "collective-timeout"),
        ("RuntimeError", "[/g/gloo/pair.cc:598] Connection closed by peer [127.0.0.1]:40212", "collective-timeout"),
        ("IndexError", "index out of range in self", "id-out-of-range"),
    ],
)
def test_words_that_other_exceptions_have_too(name: str, text: str, family: str | None) -> None:
    assert getattr(exceptions.recognise(name, f"{name}: {text}"), "name", None) == family


def test_rows_that_are_selected_are_no_embedding() -> None:
    text = "Traceback:\n  File t.py, line 9\n    x.index_select(0, rows)\nIndexError: index out of range in self"
    assert exceptions.recognise("IndexError", text) is None


def test_an_unknown_crash_is_told_as_it_is(make) -> None:
    process = make.process(events=exception("ValueError", "ValueError: nonsense"), end=Exit("exception", 1))
    assert make.check("crash", process)[2].title == "ValueError: nonsense at train.py:9"


def test_no_crash(make) -> None:
    stopped = make.process(events=exception("KeyboardInterrupt", "KeyboardInterrupt"), end=Exit("interrupted", 130))
    for process in (make.process(), stopped, make.process(end=Exit("running"))):
        assert make.check("crash", process)[0] == "passed"
    assert make.check("crash", make.process(end=Exit("vanished")))[0] == "skipped"


def test_other_ends_are_not_out_of_memory(make) -> None:
    failed = make.process(events=exception("ValueError", "ValueError: 3"), end=Exit("exception", 1))
    for process in (make.process(), failed):
        assert make.check("out-of-memory", process)[0] == "passed"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB.", "device"),
        ("RuntimeError", "[enforce fail] DefaultCPUAllocator: can't allocate memory", "host"),
        ("MemoryError", "Unable to allocate 8 GiB for an array", "host"),
    ],
)
def test_out_of_memory_is_told_once(make, name, text, kind) -> None:
    process = make.process(events=exception(name, f"{name}: {text}"), end=Exit("exception", 1))
    diagnosis = diagnose(make.run(process))
    assert [finding.rule for finding in diagnosis.findings] == ["out-of-memory"]
    assert kind in diagnosis.findings[0].title


CROWDED = (
    "CUDA out of memory. Tried to allocate 32.00 MiB. GPU 0 has a total capacity of 79.18 GiB of which 27.75 MiB is "
    "free. Process 957 has 75.96 GiB memory in use. Process 995 has 918.00 MiB memory in use. Including non-PyTorch "
    "memory, this process has 678.00 MiB memory in use. Of the allocated memory 195.50 KiB is allocated by PyTorch."
)
"""What torch 2.11 said on a device that another program had filled."""
FULL = CROWDED.replace("75.96 GiB", "0.50 GiB").replace("678.00 MiB", "77.70 GiB")


@pytest.mark.parametrize(
    ("text", "step", "said", "fix"),
    [
        (CROWDED, None, "other programs hold 76.9 GiB of 79.2 GiB", "nvidia-smi"),
        (CROWDED, 40, "other programs hold 76.9 GiB of 79.2 GiB", "nvidia-smi"),
        (FULL.replace("32.00 MiB", "4.00 GiB"), None, "It never fit:", "Halve the batch"),
        (FULL, 40, "It fit until then", "Halve the batch"),
        ("CUDA error: out of memory", None, "does not say who held", "Halve the batch"),
        ("Unable to allocate 8 GiB for an array", None, "before its first step left no room", "Load less"),
        ("CUDA error: out of memory", 40, "It fit until then", "Halve the batch"),
    ],
)
def test_out_of_memory_says_who_held_the_device(make, text, step, said, fix) -> None:
    events = exception("torch.OutOfMemoryError", f"torch.OutOfMemoryError: {text}", step=step)
    finding = make.check("out-of-memory", make.process(events=events, end=Exit("exception", 1)))[2]
    assert said in f"{finding.title} {finding.summary}"
    assert fix in finding.fix
    assert len(finding.title) <= 95
    assert bool(finding.fix_code) is (fix == "Halve the batch")


ASKED = "CUDA out of memory. Tried to allocate 60.00 GiB. GPU 0 has a total capacity of 79.18 GiB."
ARRAY = "Unable to allocate 3.64 TiB for an array with shape (1000000, 1000000) and data type float32"


@pytest.mark.parametrize(
    ("name", "text", "source", "fix"),
    [
        ("torch.OutOfMemoryError", ASKED, "s = z @ z.T", "parts"),
        ("torch.OutOfMemoryError", ASKED, "d = torch.cdist(x, x)", "parts"),
        ("torch.OutOfMemoryError", ASKED, "far = (x[:, None] - x[None]).norm(dim=-1)", "parts"),
        ("torch.OutOfMemoryError", ASKED, "table = nn.Embedding(words, width)", "one tensor smaller"),
        ("torch.OutOfMemoryError", ASKED.replace("60.00 GiB", "2.00 GiB"), "s = z @ z.T", "Halve the batch"),
        ("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes",
         "s = torch.mm(z, z.T)", "parts"),
        ("MemoryError", ARRAY, "near = np.zeros((n, n), dtype=np.float32)", "one tensor smaller"),
        ("MemoryError", "Unable to allocate 1.00 GiB for an array", "s = z @ z.T", "Load less"),
    ],
)  # fmt: skip
def test_one_allocation_that_is_too_large_by_itself(make, name: str, text: str, source: str, fix: str) -> None:
    """A product of all rows with all others does not fit because the batch is large."""
    events = [row | {"source": source, "file": "train.py", "line": 9} for row in exception(name, f"{name}: {text}")]
    facts = {"host_memory_bytes": 64 * 2**30}
    finding = make.check("out-of-memory", make.process(events=events, end=Exit("exception", 1), facts=facts))[2]
    assert fix in finding.fix
    assert ("at once" in finding.summary) is (fix in ("parts", "one tensor smaller"))
    assert ("half the batch size" in finding.fix_code) is (fix == "Halve the batch")
    assert ("checkpoint(part" in finding.fix_code) is (fix == "parts")


@pytest.mark.parametrize(
    ("shapes", "through", "step", "line"),
    [
        (["24x78", "24x75", "24x60", "24x78"], 137, 417, 60),
        (["24x78", "24x75", "24x60", "24x78"], 112, 417, 79),  # an evaluation
        (["24x78", "24x75", "24x60", "24x78"], 137, 2, 79),  # it never fitted
        (["24x78", "24x78", "24x78", "24x78"], 137, 417, 79),  # all as wide
        (["24x78", "16x78", "24x78", "8x78"], 137, 417, 79),
    ],
)
def test_a_batch_that_is_far_longer_than_those_before(make, shapes, through: int, step: int, line: int) -> None:
    text = f'File "/home/me/train.py", line {through}, in main\nFile "/home/me/train.py", line 79, in forward\n'
    text += "RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes"
    where = {"source": "scores = q @ k.transpose(-1, -2)", "file": "train.py", "line": 79}
    events = [row | where for row in exception("RuntimeError", text, step=step)]
    place = {"file": "train.py", "function": "main", "source": "..."}
    roles = {"training-call": 137, "evaluation": 112, "collate": 60}
    sites = [place | {"site": at, "role": role, "line": at} for role, at in roles.items()]
    batches = [{"step": at, "loader": 0, "trained": True, "field": "0", "shape": one} for at, one in enumerate(shapes)]
    process = make.process(
        events=events, end=Exit("exception", 1), facts={"host_memory_bytes": 64 * 2**30}, sites=sites,
        loaders=[{"loader": 0, "dataset": "Logs", "iterable": False, "collated_by": 60}], more={"batches": batches},
    )  # fmt: skip
    finding = make.check("out-of-memory", process)[2]
    assert finding.location.line == line
    assert ("lengths of 60 to 78" in finding.summary) is (line == 60)


@pytest.mark.parametrize(
    ("kept", "peak", "said"),
    [
        (lambda part: 2e9, lambda part: 8e9 + 60e9 * max(0.0, part - 0.6), "its inputs grew"),
        (lambda part: 2e9 + 60e9 * part, lambda part: 8e9 + 60e9 * part, "something is kept"),
        (lambda part: 2e9, lambda part: 8e9, "this needed more memory than what ran before"),
    ],
)
def test_out_of_memory_says_how_it_came_to_that(make, kept, peak, said) -> None:
    steps = make.steps() | {
        "device_allocated": [kept(step / COUNT) for step in range(COUNT)],
        "device_peak": [peak(step / COUNT) for step in range(COUNT)],
    }
    events = exception("torch.OutOfMemoryError", f"torch.OutOfMemoryError: {FULL}", step=COUNT)
    finding = make.check("out-of-memory", make.process(steps, events=events, end=Exit("exception", 1)))[2]
    assert said in finding.summary
    assert finding.summary.startswith("PyTorch asked for 32 MiB more, and this process held 77.7 GiB of 79.2 GiB.")


def test_a_leak_explains_running_out_of_memory(make) -> None:
    steps = make.steps() | {"live_graphs": list(range(1, COUNT + 1))}
    events = exception("MemoryError", "MemoryError", step=COUNT)
    findings = diagnose(make.run(make.process(steps, events=events, end=Exit("exception", 1)))).findings
    assert [(f.rule, f.caused_by) for f in findings] == [("memory-leak", None), ("out-of-memory", "memory-leak")]


def test_killed(make) -> None:
    samples = {"time": [1.0, 2.0], "host_available": [5e9, 1e8], "host_rss": [1e9, 6e9]}
    starved = make.process(samples=samples, end=Exit("vanished"), facts={"host_memory_bytes": 16e9})
    assert "host memory most likely ran out" in make.check("killed", starved)[2].title
    roomy = make.process(samples=samples | {"host_available": [5e9, 5e9]}, end=Exit("vanished"))
    assert "probably not" in make.check("killed", roomy)[2].summary
    falling = {"time": [1.0, 2.0, 3.0], "host_available": [9e9, 7e9, 3e9]}
    assert (
        "host memory most likely ran out"
        in make.check("killed", make.process(samples=falling, end=Exit("vanished")))[2].title
    )
    slowly = falling | {"host_available": [5.2e9, 5.1e9, 5e9]}
    assert (
        "host memory most likely ran out"
        not in make.check("killed", make.process(samples=slowly, end=Exit("vanished")))[2].title
    )
    signal = make.check("killed", make.process(end=Exit("signal", None, "Segmentation fault")))[2]
    assert "Segmentation fault" in signal.title
    assert signal.location is None
    told = "Fatal Python error: Aborted, in forward at line 24 of train.py"  # worded by exits.py, see test_rundir.py
    assert make.check("killed", make.process(end=Exit("signal", None, told)))[2].location.line == 24
    full = make.process(end=Exit("vanished"))
    full.notes.append("recording stopped at step 30: no space left on device")
    assert make.check("killed", full)[2].confidence == "possible"


def test_a_kill_is_told_by_the_step_of_the_optimizer_that_ran(make) -> None:
    """A short training that followed a long one, each with steps of its own; or none at all yet."""
    two = [{"optimizer": at, "name": name, "device": "cpu"} for at, name in enumerate(("Adam", "SGD"))]
    steps = make.steps() | {"optimizer": [0] * 300 + [1] * 100, "step": [*range(1, 301), *range(1, 101)]}
    _, _, finding = make.check("killed", make.process(steps, optimizers=two, end=Exit("vanished")))
    assert finding.title == "The program was killed after step 100 of SGD (optimizer 1) and left no message"
    assert finding.first_step == 100
    nothing = {name: values[:0] for name, values in make.steps().items()}
    _, _, early = make.check("killed", make.process(nothing, optimizers=[], end=Exit("vanished")))
    assert early.title == "The program was killed before its first step and left no message"
    assert "No step was recorded." in early.summary


def test_what_was_not_measured_is_no_evidence_of_a_kill(make) -> None:
    blind = make.check("killed", make.process(samples={"time": [1.0, 2.0]}, end=Exit("vanished")))[2]
    assert "memory left to the process" not in {one.name for one in blind.evidence}


def test_a_loop_that_raises_at_a_loss_that_is_no_number_ended_there(make) -> None:
    given_up = [{"kind": "loss-given-up", "step": COUNT, "name": "Inf", "time": 1.0}]
    ended = make.process(events=given_up, end=Exit("exception", 1, "RuntimeError: diverged"))
    assert make.check("loss-nonfinite", ended)[2].title == "1 loss was Inf, and the program ended there"
    skipped = make.process(events=[given_up[0] | {"step": COUNT // 2}], end=Exit("exception", 1, "KeyError: 'x'"))
    assert make.check("loss-nonfinite", skipped)[2].title.endswith("the loop skipped the step")


def test_killed_for_its_processor_time(make) -> None:
    """`ulimit -t`: the kernel ends the process without a message."""

    source = "resource.setrlimit(resource.RLIMIT_CPU, (budget, budget))"
    sets = {"site": 77, "role": "limit", "file": "a.py", "line": 28, "function": "guard", "source": source}

    def told(limit: float | None, end: str = "vanished", sites: Any = (sets,)) -> Any:
        used = [1.0 * at for at in range(10)]
        samples = {"time": used, "cpu_seconds": used, "cpu_limit": [limit] * 10, "host_available": [20e9] * 10}
        return make.check("killed", make.process(samples=samples, end=Exit(end), sites=list(sites)))[2]

    finding = told(10.0)
    assert finding.title.endswith("its processor time was used up")
    assert "RLIMIT_CPU" in finding.summary
    assert finding.fix.startswith("Raise the limit that line 28 sets, or take it away. It counts in seconds, of all")
    assert "`ulimit -t` in the shell" in told(10.0, sites=[]).fix
    (used,) = [one for one in finding.evidence if one.name == "processor time used"]
    assert (used.value, used.threshold) == ("9 s", "10 s")
    assert "SIGALRM" not in finding.summary
    assert "memory" not in finding.summary
    assert finding.location.line == 28, "the script sets the limit itself"
    by_name = {
        "args.cpu_minutes, args.cpu_minutes": "Multiply args.cpu_minutes by 60 in line 28: it reads as minutes, and",
        "hours, hours": "Multiply hours by 3,600 in line 28: it reads as hours, and",
        "60 * cpu_minutes, 60 * cpu_minutes": "Raise the limit that line 28 sets",
        "minutes_left(), hours": "Raise the limit that line 28 sets",
        "seconds_of(minutes), seconds_of(minutes)": "Raise the limit that line 28 sets",
    }
    for given, said in by_name.items():
        line = f"resource.setrlimit(resource.RLIMIT_CPU, ({given}))"
        assert told(10.0, sites=[sets | {"source": line}]).fix.startswith(said)
    for limit in (3600.0, None):
        assert told(limit).location is None
        assert "processor time" not in told(limit).title
        assert "probably not killed for memory" in told(limit).summary


def test_not_killed(make) -> None:
    for end in (Exit("finished", 0), Exit("exception", 1), Exit("running"), Exit("interrupted")):
        assert make.check("killed", make.process(end=end))[0] == "passed"
    assert make.check("killed", make.process(end=Exit("unknown")))[0] == "skipped"


GIB = 2**30


def refusals(at: list[int], held: float = 70.0, used: float = 40.0) -> dict[str, list[object]]:
    """Allocator counters over the steps: refusals in the steps `at`, GiB held and ever used."""
    count = len(at) and [sum(step <= index for step in at) for index in range(COUNT)]
    return {
        "device_retries": count or [0] * COUNT,
        "device_reserved": [int(held * GIB)] * COUNT,
        "device_peak": [int(used * GIB)] * COUNT,
        "seconds": [0.9 if index in at else 0.1 for index in range(COUNT)],
    }


def test_memory_fragmentation_when_the_driver_refuses_again_and_again(make) -> None:
    status, _, finding = make.check("memory-fragmentation", make.process(make.steps() | refusals([50, 170, 260, 399])))
    assert status == "fired"
    assert (finding.first_step, finding.last_step) == (51, 400)
    assert finding.cost.seconds == pytest.approx(4 * 0.8)
    assert "expandable_segments" in finding.fix_code


@pytest.mark.parametrize(
    "counters",
    [
        refusals([]),
        refusals([0, 3, 5, 7]),  # while memory fills
        refusals([50, 60, 70]),  # over by the middle of the run
        refusals([50, 300]),  # single long batches
        refusals([50, 170, 260, 399], used=68),  # the memory is really full
    ],
)
def test_memory_fragmentation_is_silent(make, counters) -> None:
    assert make.check("memory-fragmentation", make.process(make.steps() | counters))[0] == "passed"


def test_memory_fragmentation_needs_a_device(make) -> None:
    assert make.check("memory-fragmentation", make.process())[0] == "skipped"


PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:16769."


def rank(make, number: int, at: float, name: str, text: str, end: Exit | None = None, world: int = 2):
    """A rank of a job that ended with this exception, or as `end` says, so many seconds after it began."""
    facts = {"rank": number, "world_size": world, "host": "here", "launcher": "here-1", "clock": {"zero": 1000.0}}
    events = [row | {"time": at} for row in exception(name, text)] if name else []
    process = make.process(events=events, end=end or Exit("exception", 1, text), facts=facts)
    process.name = f"rank{number:05d}"
    return process


def test_a_peers_error_is_the_consequence_even_if_it_came_first(make) -> None:
    first = rank(make, 1, 2.5, "KeyError", "KeyError: 'price'")
    lost = rank(make, 0, 2.0, "RuntimeError", PEER)
    _, _, finding = make.check("crash", lost, first)
    assert finding.title == "KeyError: 'price' at train.py:9"
    assert (finding.ranks, finding.confidence) == ([1], "certain")
    asked = rank(make, 0, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM)"))
    assert make.check("killed", asked, first)[0] == "passed"


def test_a_rank_that_ends_with_an_exit_code_takes_the_others_along(make) -> None:
    """torch.multiprocessing.spawn catches a rank's exception, ends it with 1 and asks the others to end."""
    failed = rank(make, 0, 2.0, "", "", Exit("finished", 1))
    asked = rank(make, 1, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM), in read at line 6 of a.py"))
    assert make.check("killed", failed, asked)[0] == "passed"
    well = rank(make, 0, 2.0, "", "", Exit("finished", 0))
    _, _, finding = make.check("killed", well, asked)
    assert (finding.location.file, finding.location.line) == ("a.py", 6)
    known = [{"site": 1, "role": "forward", "file": "/home/me/a.py", "line": 3, "function": "main", "source": ""}]
    asked.tables["sites"] = make.process(sites=known).tables["sites"]
    assert make.check("killed", well, asked)[2].location.file == "/home/me/a.py", "as the program's other lines"


def test_the_first_of_several_exceptions_by_wall_clock_is_named(make) -> None:
    ranks = [rank(make, number, 3.0 - number, "ValueError", f"ValueError: number {number}") for number in range(3)]
    _, _, finding = make.check("crash", *ranks)
    assert finding.title.startswith("ValueError: number 2")
    assert "Ranks 1 and 0 ended after it" in finding.summary


def test_ranks_that_all_lost_each_other_are_not_certain(make) -> None:
    texts = {0: PEER, 1: "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)"}
    _, _, finding = make.check("crash", *(rank(make, n, 2.0, "RuntimeError", text) for n, text in texts.items()))
    assert finding.confidence == "likely"
    assert finding.title == "Rank 0 lost contact with the other ranks"
    alone = rank(make, 0, 2.0, "ConnectionResetError", "ConnectionResetError: Connection reset by peer", world=1)
    assert make.check("crash", alone)[2].title.startswith("ConnectionResetError"), "a download, not a rank"
    every = [rank(make, n, 3.0, "", "", Exit("signal", None, "asked to terminate (SIGTERM)")) for n in range(2)]
    assert make.check("killed", *every)[2].ranks == [0, 1], "a scheduler asked them all"
