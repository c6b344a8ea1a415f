"""input-normalization where training and validation inputs have two ranges, and what differs between them in health."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers import diagnose

NORMAL = {"mean": 0.0, "std": 1.0, "min": -3.6, "max": 3.9}
RAW = {"mean": 120.0, "std": 40.0, "min": -24.0, "max": 276.0}
UNIT = {"mean": 0.45, "std": 0.25, "min": 0.0, "max": 1.0}
IMAGENET = {"mean": 0.0, "std": 1.11, "min": -2.0, "max": 2.44}  # (UNIT - 0.45) / 0.225
Row = dict[str, Any]
LOOP = """\
for x, y in train:
    out = model(x.to(device))
for x, y in val:
    total += criterion(model(x.to(device)), y).item()
"""


def batches(loader: int, trained: bool, *looks: Row, dtype: str = "float32") -> list[Row]:
    known = {"loader": loader, "trained": trained, "epoch": 0, "field": "0", "dtype": dtype, "shape": "32x1x8x8"}
    known |= {"nonfinite": False, "alert": False}
    return [known | {"step": at, "batch": at, "time": 0.05 * at} | one for at, one in enumerate(looks)]


def sites(loop: str) -> list[Row]:
    lines = loop.splitlines()
    place = {"file": "a.py", "function": "<module>", "excerpt": loop.rstrip(), "excerpt_line": 1}
    calls = [number for number, line in enumerate(lines, 1) if "model(" in line]
    roles = {calls[0]: "training-call", calls[-1]: "evaluation"}
    found = [
        place | {"site": at, "role": role, "line": at, "source": lines[at - 1].strip()} for at, role in roles.items()
    ]
    made = "opt = SGD(model.parameters(), lr=0.1)"
    maker = {"site": 50, "role": "optimizer", "line": 50, "source": made, "excerpt": made, "excerpt_line": 50}
    val = {"site": 51, "role": "dataloader", "line": 51, "source": "val = DataLoader(held_out)", "excerpt_line": 51}
    return [*found, place | maker, place | val | {"excerpt": val["source"]}]


def forward(*kinds: str) -> list[Row]:
    look = {"time": 0.05, "step": 1, "alert": False, "mean": 0.0, "std": 1.0, "nonfinite": 0}
    return [look | {"order": at, "module": f"{at}", "kind": kind} for at, kind in enumerate(kinds, 1)]


def trained(make: Any, training: list[Row], validation: list[Row], loop: str = LOOP, **change: Any) -> Any:
    evals = make.evals(6, 60) | {"loss": [21.0, 24.0, 30.0, 41.0, 55.0, 60.0], "site": [sites(loop)[1]["site"]] * 6}
    evals |= change.pop("evals", {})
    loaders = [
        {"loader": 0, "dataset": "TensorDataset", "length": 100, "batch_size": 32},
        {"loader": 1, "dataset": "TensorDataset", "length": 10, "batch_size": 100, "made_at": 51},
    ]
    steps = make.steps() | {"loss": [max(0.01, 1.1 * 0.98**at) for at in range(400)]}
    losses = [max(0.01, 1.1 * 0.98**at) for at in range(0, 400, 20)]
    calls = [
        {"step": 20 * at, "function": "cross_entropy", "training": True, "reduction": "mean", "input_shape": "32x3"}
        | {"target_integer": True, "value": loss, "site": 1}
        for at, loss in enumerate(losses)
    ]
    calls += [{"step": 60, "function": "cross_entropy", "training": False, "reduction": "mean", "site": 4}]
    more = {
        "batches": [*training, *validation],
        "activations": change.pop("activations", forward("Linear")),
        "loss_calls": calls,
    }
    return make.process(steps, evals=evals, sites=sites(loop), loaders=loaders, more=more)


def train_side(*looks: Row) -> list[Row]:
    return batches(0, True, *(looks or [NORMAL] * 8))


def held_out(*looks: Row) -> list[Row]:
    return batches(1, False, *(looks or [RAW] * 5))


def test_validation_that_is_not_normalised(make) -> None:
    process = trained(make, train_side(), held_out())
    status, _, finding = make.check("input-normalization", process)
    assert (status, finding.confidence, finding.severity) == ("fired", "certain", "critical")
    assert finding.title == "Validation inputs are not normalised like training inputs: mean 120, not 0"
    assert finding.location.source == "val = DataLoader(held_out)"
    assert finding.seen_at.line == 4
    assert "no better than that of a guess" in finding.summary
    assert "in validation, too" in finding.fix_code


@pytest.mark.parametrize(
    ("training", "validation", "side"),
    [
        (RAW, NORMAL, "training"),
        (IMAGENET, UNIT, "validation"),
        (UNIT, IMAGENET, "training"),
        (UNIT, RAW, "validation"),
    ],
    ids=["training is raw", "pixels without their mean", "the reverse", "not divided by 255"],
)
def test_either_side_may_be_the_raw_one(make, training: Row, validation: Row, side: str) -> None:
    finding = make.check(
        "input-normalization", trained(make, train_side(*[training] * 8), held_out(*[validation] * 5))
    )[2]
    assert finding.fix.startswith(f"Prepare {side} inputs")


NOISY = UNIT | {"std": 0.32, "min": -0.4, "max": 1.4}
MIXED = UNIT | {"std": 0.18, "min": 0.02, "max": 0.98}
CUT_OUT = UNIT | {"mean": 0.35, "std": 0.29}
OTHER_SOURCE = {"mean": 0.9, "std": 1.6, "min": -2.1, "max": 6.0}
FIRST_CLASS, SECOND_CLASS = ({"mean": at, "std": 0.05, "min": at - 0.2, "max": at + 0.2} for at in (-1.0, 1.0))
LONGER = {
    "mean": 5.0,
    "std": 2.9,
    "min": 0.0,
    "max": 10.0,
}  # extrapolation from 0 to 1, where there is no deviation of 1
SHORTER = {"mean": 0.5, "std": 0.29, "min": 0.0, "max": 1.0}


@pytest.mark.parametrize(
    ("training", "validation"),
    [
        ([NORMAL] * 8, [NORMAL] * 5),
        ([NOISY] * 8, [UNIT] * 5),
        ([MIXED] * 8, [UNIT] * 5),
        ([CUT_OUT] * 8, [UNIT] * 5),
        ([NORMAL] * 8, [OTHER_SOURCE] * 5),
        ([FIRST_CLASS, SECOND_CLASS] * 4, [SECOND_CLASS] * 5),
        ([SHORTER] * 8, [LONGER | {"max": 10.0, "mean": 3.0}] * 5),
        ([RAW] * 8, [RAW | {"mean": 300.0, "std": 160.0, "max": 900.0}] * 5),
    ],
    ids=["alike", "noise", "mixup", "cutout", "another source", "a class a batch", "further out", "both raw"],
)
def test_what_differs_between_the_two_in_health(make, training: list[Row], validation: list[Row]) -> None:
    assert make.check("input-normalization", trained(make, train_side(*training), held_out(*validation)))[0] != "fired"


@pytest.mark.parametrize(("losses", "fires"), [([1] * 6, True), ([1, 1, 1, 1, 1, 0], False)])
def test_what_a_model_draws_of_its_own_is_no_validation(make, losses: list[int], fires: bool) -> None:
    """A sampler feeds the model what it made before. No loader tells it from data, and no loss is computed of it."""
    drawn = [row | {"loader": None, "time": 1e4} for row in held_out()]
    alike = [row | {"loader": None} for row in train_side()]
    process = trained(make, alike, drawn, evals=make.evals(6, 60) | no_loader_of(losses))
    process.optimizations[0].steps["loader"][:] = float("nan")
    assert (make.check("input-normalization", process)[0] == "fired") is fires


def no_loader_of(losses: list[int]) -> Row:
    return {"loader": [float("nan")] * 6, "losses": losses, "loss": [21.0, 24.0, 30.0, 41.0, 55.0, 60.0]}


def test_token_ids_and_targets_have_no_range(make) -> None:
    ids = batches(0, True, *[NORMAL] * 8, dtype="int64"), batches(1, False, *[RAW] * 5, dtype="int64")
    assert make.check("input-normalization", trained(make, *ids))[0] != "fired"
    targets = [[row | {"field": "y"} for row in side] for side in (train_side(), held_out())]
    assert make.check("input-normalization", trained(make, *targets))[0] != "fired"


@pytest.mark.parametrize(
    "loop",
    [
        LOOP.replace("    total", "    x = (x - mean) / std\n    total"),
        LOOP.replace("    total", "    x, y = prepare(x), y.to(device)\n    total"),
        LOOP.replace("    total", "    x -= mean\n    total"),
        LOOP.replace("    total", "    x = normalize(x.to(device))\n    total"),
        LOOP.replace("criterion(model(x.to(device))", "criterion(model((x.to(device) - mean) / std)"),
        LOOP.replace("    out", "    x = x * 40 + 120\n    out"),
    ],
)
def test_a_loop_that_normalises_on_the_way(make, loop: str) -> None:
    assert make.check("input-normalization", trained(make, train_side(), held_out(), loop))[0] == "passed"


@pytest.mark.parametrize("loop", [LOOP, LOOP.replace("    total", "    x, y = x.cuda(), y.cuda()\n    total")])
def test_validation_as_good_as_training_was_given_the_same(make, loop: str) -> None:
    good = {"evals": {"loss": [0.6, 0.2, 0.06, 0.02, 0.011, 0.01]}}
    assert make.check("input-normalization", trained(make, train_side(), held_out(), loop, **good))[0] == "passed"
    bad = trained(make, train_side(), held_out(), loop)
    assert make.check("input-normalization", bad)[2].confidence == "certain"


def test_lines_that_do_not_tell_make_it_likely(make) -> None:
    loop = LOOP.replace("criterion(model(x.to(device)), y)", "validate(model, x, y)")
    assert make.check("input-normalization", trained(make, train_side(), held_out(), loop))[2].confidence == "likely"


def test_a_model_that_evens_out_each_sample_is_given_any_range(make) -> None:
    process = trained(make, train_side(), held_out(), activations=forward("LayerNorm", "Linear"))
    assert make.check("input-normalization", process)[0] == "passed"


def test_it_comes_before_what_follows_from_it(make) -> None:
    """The best validation loss is twenty times that of a guess: nothing of it is overfitting."""
    checks = ["input-normalization", "overfitting", "loss-plateau"]
    diagnosis = diagnose(make.run(trained(make, train_side(), held_out())), select=checks, strict=True)
    first, *later = diagnosis.findings
    assert first.rule == "input-normalization"
    assert [one.rule for one in later] == ["loss-plateau"]
    assert "overfitting" not in [one.rule for one in diagnosis.findings]
    reason = next(one.reason for one in diagnosis.checks if one.rule == "overfitting")
    assert "21, is far above that of a guess among 3 classes (1.1)" in reason


@pytest.mark.parametrize(
    ("losses", "fires"),
    [([22.0] * 6, True), ([21.0, 24.0, 30.0, 41.0, 55.0, 60.0], True), ([22.0, 22.0], False), ([1.2] * 6, False)],
    ids=["flat", "rising", "few passes", "overconfident at most"],
)
def test_a_validation_that_never_gets_better_than_a_guess(make, losses: list[float], fires: bool) -> None:
    evals = make.evals(len(losses), 60) | {"loss": losses, "site": [4] * len(losses)}
    process = trained(make, train_side(), held_out(*[NORMAL] * 5), evals=evals)
    status, _, finding = make.check("loss-plateau", process)
    assert (status == "fired") is fires
    if fires:
        assert finding.title.startswith("Validation never gets better than a guess: its loss stands at ")
        assert finding.location.line == 4
