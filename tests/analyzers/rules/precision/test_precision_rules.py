"""fp16-underflow and autocast-not-applied: what they fire on, and what looks the same and is healthy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers import diagnose

COUNT = 400
QUANTUM = 2.0**-24


def half(make: Any, code: int = 1, **columns: Any) -> dict[str, Any]:
    return dict(make.steps()) | {"autocast": [code] * COUNT} | columns


def gradients(zeros: float, usual: float) -> list[dict[str, Any]]:
    return [
        {
            "time": 0.05 * step,
            "step": step,
            "optimizer": 0,
            "parameter": name,
            "elements": 512,
            "grad_finite": True,
            "grad_zeros": zeros,
            "grad_usual": usual,
        }
        for step in (1, 2, 11, 40)
        for name in ("a", "b")
    ]


def underflow(make: Any, steps: Any, rows: Any) -> Any:
    return make.check("fp16-underflow", make.process(steps, more={"parameters": rows}))


def test_gradients_at_the_end_of_the_format(make) -> None:
    status, _, finding = underflow(make, half(make), gradients(0.6, 3 * QUANTUM))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "certain")
    assert "60%" in finding.title
    scaled = half(make, scale=[8.0] * COUNT)
    assert underflow(make, scaled, gradients(0.6, QUANTUM / 4))[0] == "fired", "a scale that is too small"
    assert underflow(make, scaled, gradients(0.6, 8 * QUANTUM))[0] == "passed", "well above it"
    assert "no larger than 1.79e-07, close to the smallest number" in finding.summary
    least = underflow(make, half(make), gradients(0.6, QUANTUM))[2].summary
    assert "half of the others are the smallest number that float16 can hold here, 5.96e-08." in least


def test_the_title_counts_the_gradients_that_underflow_alone(make) -> None:
    """Of half of them most elements are zero: that is no such share of all elements."""
    some = gradients(0.6, 3 * QUANTUM)[::2] + gradients(0.0, 1e-3)[1::2]
    finding = underflow(make, half(make), some)[2]
    assert finding.title == "Gradients underflow in float16: 60% of the elements of 50% of them are zero"
    assert "Nothing scales the loss" in finding.summary
    by_hand = underflow(make, half(make, loss_divisor=[0.5] * COUNT), some)[2]
    assert "Nothing scales the loss" not in by_hand.summary


@pytest.mark.parametrize(("code", "said"), [(1, "float16 overflows"), (2, "bfloat16 overflows"), (0, "Scaled grad")])
def test_a_scaler_where_nothing_is_computed_in_float16(make, code: int, said: str) -> None:
    """With bfloat16 it gains nothing; and where autocast is off around the model, it is not known what overflows."""
    skips = {"scale": [2.0**-19] * COUNT, "skipped": [True] * COUNT}
    finding = make.check("fp16-overflow", make.process(half(make, code, **skips)))[2]
    assert finding.title.startswith(said)
    assert ("Use bfloat16 where" in finding.fix) == (code != 2)
    assert ("without the scaler" in finding.fix_code) == (code == 2)
    divided = half(make, code, scaler_use=[2] * COUNT, losses_scaled=[0] * COUNT)
    summary = make.check("scaler-misuse", make.process(divided))[2].summary
    assert ("underflow in float16" in summary) == (code == 1)


def test_zeros_that_are_none_of_float16(make) -> None:
    assert underflow(make, half(make), gradients(0.6, 1e-3))[0] == "passed", "units that are off"
    assert underflow(make, half(make), gradients(0.05, 3 * QUANTUM))[0] == "passed", "small, and there"
    assert underflow(make, half(make, 2), gradients(0.6, 3 * QUANTUM))[0] == "skipped", "bfloat16"
    assert underflow(make, half(make), [])[0] == "skipped"


def layers(dtypes: list[str], heavy: int = 0) -> list[dict[str, Any]]:
    return [
        {"time": 0.1, "step": step, "order": index, "module": f"l{index}", "kind": "Linear", "dtype": dtype,
         "elements": 6400, "inputs": 512 if index == heavy else 64, "outputs": 64}
        for step in (1, 11)
        for index, dtype in enumerate(dtypes)
    ]  # fmt: skip


def autocast(make: Any, steps: Any, rows: Any, calls: Any = ()) -> Any:
    more = {"activations": rows, "loss_calls": list(calls)}
    return make.check("autocast-not-applied", make.process(steps, more=more))


def test_products_in_float32_under_autocast(make) -> None:
    status, _, finding = autocast(make, half(make, 2), layers(["float32", "float32", "bfloat16"]))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "certain")
    assert "l0 and l1" in finding.summary


def test_autocast_that_is_applied(make) -> None:
    assert autocast(make, half(make, 2), layers(["bfloat16"] * 3))[0] == "passed"
    assert autocast(make, half(make, 2), layers(["bfloat16", "bfloat16", "float32"]))[0] == "passed", "a float32 head"
    assert autocast(make, half(make, 0), layers(["float32"] * 3))[0] == "skipped", "off"
    first = half(make, 2) | {"autocast": [2] * 100 + [0] * 300}
    assert autocast(make, first, layers(["float32"] * 3))[0] == "passed", "a part of the run"


def test_another_training_of_the_process_has_regions_of_its_own(make) -> None:
    """A teacher is trained in float32 first, and has layers of the same names."""
    steps = half(make, 2) | {"optimizer": [0] * 150 + [1] * (COUNT - 150), "autocast": [0] * 150 + [2] * (COUNT - 150)}
    assert autocast(make, steps, layers(["float32"] * 3))[0] == "skipped"
    later = [row | {"step": row["step"] + 200} for row in layers(["float32"] * 3)]
    assert autocast(make, steps, later)[0] == "fired"
    plain = steps | {"autocast": [2] * 150 + [0] * (COUNT - 150)}
    calls = [{"step": step, "function": "mse_loss", "training": True, "autocast": 2, "site": 1} for step in range(12)]
    assert autocast(make, plain, [], calls)[0] == "skipped"


def test_products_that_no_layer_makes(make) -> None:
    def judge(wide: float, dtypes: list[str], work: float = 1e9, losses: int = 4) -> Any:
        graphs = [
            {"step": step, "site": 1, "products_work": work, "products_wide": wide * work} for step in range(losses)
        ]
        more = {"activations": layers(dtypes), "loss_graphs": graphs}
        return make.check("autocast-not-applied", make.process(half(make, 2), more=more))

    status, _, finding = judge(0.9, ["bfloat16"])
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "90%" in finding.title
    assert judge(1.0, [])[0] == "fired"
    assert judge(0.1, [])[0] == "passed", "a small product in float32 on purpose"
    assert judge(0.1, ["bfloat16"] * 3)[0] == "passed"
    assert judge(1.0, ["bfloat16"] * 3, work=10.0)[0] == "passed", "a head in float32 behind a frozen part"
    assert judge(1.0, [], losses=1)[0] == "skipped"


def test_a_region_around_the_loss_alone(make) -> None:
    def calls(code: int) -> list[dict[str, Any]]:
        return [
            {"step": step, "function": "mse_loss", "training": True, "autocast": code, "site": 1}
            for step in np.arange(12).tolist()
        ]

    status, _, finding = autocast(make, half(make, 0), layers(["float32"] * 3), calls(2))
    assert (status, finding.location.line) == ("fired", 41)
    assert autocast(make, half(make, 0), layers(["float32"] * 3), calls(0))[0] == "skipped"
    assert autocast(make, half(make, 2), layers(["bfloat16"] * 3), calls(2))[0] == "passed"


@pytest.mark.parametrize(("held", "device"), [("cpu", "cpu"), ("cuda:1", "cuda")])
def test_a_scaler_of_an_example_is_for_the_device_of_the_run(make, held: str, device: str) -> None:
    """One that is told none is for CUDA, and disabled on a CPU."""
    optimizers = [{"optimizer": 0, "name": "SGD", "device": held}]
    anew = make.steps() | {"scaler_use": [2] * 400, "losses_scaled": [1] * 400, "scaler_new": [1] * 400}
    _, _, finding = make.check("scaler-misuse", make.process(anew, optimizers=optimizers))
    assert f'GradScaler("{device}")' in finding.fix_code
    half = make.steps() | {"scaler_use": [0] * 400, "losses_scaled": [1] * 400}
    _, _, finding = make.check("scaler-misuse", make.process(half, optimizers=optimizers))
    assert "GradScaler(" not in finding.fix_code, "there is one, with settings of its own"


@pytest.mark.parametrize("clips", [True, False])
def test_steps_without_the_scaler_on_gradients_that_are_clipped(make, clips: bool) -> None:
    """One fault: what the clip sees is put down to it, and its example has both, in their order."""
    columns = {
        "scaler_use": [0] * 400,
        "losses_scaled": [1] * 400,
        "backwards": [1] * 400,
        "backwards_unscaled": [0] * 400,
    }
    columns |= {"clipped_scaled": [1] * 400, "clips": [1] * 400} if clips else {}
    lines = ["scaler.scale(loss).backward()", "clip_grad_norm_(net.parameters(), 1.0)", "opt.step()"]
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": 10 + at, "function": "run", "source": line}
        | {"excerpt_line": 10, "excerpt": "\n".join(lines)}
        for at, (role, line) in enumerate(zip(("backward", "clip", "step"), lines, strict=True))
    ]
    run = make.run(make.process(make.steps() | columns, sites=sites))
    found = {one.rule: one for one in diagnose(run, select=["scaler-misuse", "clip-before-unscale"]).findings}
    half = found["scaler-misuse"]
    assert half.location.line == 12
    assert (half.diff is None) == clips
    assert ("clip-before-unscale" in found) == clips
    if clips:
        assert found["clip-before-unscale"].caused_by == "scaler-misuse"
        unscaled = ["scaler.unscale_(opt)  # before the clip", lines[1], "scaler.step(opt)", "scaler.update()"]
        assert half.fix_code.split("\n") == unscaled


def test_a_scale_that_is_not_known_is_not_given_as_known(make) -> None:
    half = make.steps() | {"scaler_use": [0] * 400, "losses_scaled": [1] * 400}
    status, _, finding = make.check("scaler-misuse", make.process(half))
    assert (status, "65,536 unless init_scale is set" in finding.summary) == ("fired", True)
    assert finding.cost is None, "what Adam makes of scaled gradients is a training all the same"


@pytest.mark.parametrize(
    ("made", "scale", "place", "edited"),
    [
        ('scaler = GradScaler("cpu", init_scale=8.0)', 8.0, 5, 'scaler = GradScaler("cpu", init_scale=2.0**16)'),
        ('scaler = GradScaler("cpu", init_scale=2 ** 3)', 8.0, 5, 'scaler = GradScaler("cpu", init_scale=2.0**16)'),
        ('scaler = GradScaler("cpu", init_scale=cfg.scale)', 8.0, 5, None),
        ('scaler = GradScaler("cpu")', 8.0, None, None),  # the scale was loaded, or set in another way
    ],
)
def test_a_scale_that_the_script_begins_with(make, made: str, scale: float, place: Any, edited: Any) -> None:
    site = {"site": 9, "role": "scaler-text", "file": "train.py", "line": 5, "function": "main", "source": made}
    site |= {"excerpt": f"    {made}", "excerpt_line": 5}
    rows = gradients(0.6, QUANTUM / 4)
    process = make.process(half(make, scale=[scale] * COUNT), more={"parameters": rows}, sites=[site])
    finding = make.check("fp16-underflow", process)[2]
    assert (f"line {place} sets it" in finding.summary) == (place is not None)
    assert (finding.diff.added[0].strip() if finding.diff else None) == edited
    fallen = half(make, scale=[scale * 2] * 100 + [scale] * (COUNT - 100))
    fell = make.check("fp16-underflow", make.process(fallen, more={"parameters": rows}, sites=[site]))[2]
    assert "began at" not in fell.summary, "it overflowed at the scale before"


def test_gradients_of_which_nothing_is_left(make) -> None:
    finding = underflow(make, half(make), gradients(1.0, 0.0))[2]
    assert "half of the others" not in finding.summary
    assert "usual size of the others" not in [one.name for one in finding.evidence]
    mixed = underflow(make, half(make), gradients(1.0, 0.0)[::2] + gradients(0.6, 3 * QUANTUM)[1::2])[2]
    assert "no larger than 1.79e-07" in mixed.summary, "of the gradients that have others"
