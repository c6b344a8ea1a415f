"""fp16-overflow and fp16-without-scaler, and scales that fall for another reason."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tracelyze.analyzers.script.settings import constants
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
    silent = [half | {"scale": [1024.0] * COUNT}, half | {"loss_divisor": [1 / 1024] * COUNT}]
    for steps in silent:
        assert make.check("fp16-without-scaler", make.process(steps))[0] == "passed"
    for steps in (make.steps(), make.steps() | {"autocast": [2] * COUNT}):
        assert make.check("fp16-without-scaler", make.process(steps))[0] == "skipped", "no float16"
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
