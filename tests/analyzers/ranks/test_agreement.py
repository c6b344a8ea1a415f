"""The table of ranks that should agree: who is different, in what, since when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracelyze.analyzers import diagnose
from tracelyze.analyzers.ranks import agreement
from tracelyze.reports import render

SAMPLED_STEPS = (1, 2, 11, 16, 24, 36)
NORMS = [4.7, 4.71, 4.72, 4.73, 4.74, 4.75]
APART = [4.7, 4.71, 4.72, 4.74, 4.76, 4.79]
DDP = [{"model": 0, "name": "DistributedDataParallel", "parameters": 8, "elements": 100}]


def rank(make: Any, number: int, norms: list[float] = NORMS, gradients: list[float] = NORMS, **more: Any) -> Any:
    rows = [
        {"step": step, "optimizer": 0, "parameter": "l.weight", "weight_norm": norm, "grad_norm": gradient, "lr": 0.01}
        for step, norm, gradient in zip(SAMPLED_STEPS, norms, gradients, strict=True)
    ]
    options = json.dumps({"lr": 0.01, "weight_decay": more.pop("decay", 0.1)})
    optimizers = [{"optimizer": 0, "name": "AdamW", "parameters": 8, "elements": 100, "options": options}]
    facts = {"rank": number, "world_size": 4, "torch": "2.13.0"} | more.pop("facts", {})
    steps = make.steps(40) | {"batch_size": [more.pop("batch", 32)] * 40}
    clips = more.pop("clip", None)
    if clips is not None:
        steps |= {"loss": [1.0 / n for n in range(1, 41)], "grad_norm": [clips] * 40}
        steps |= {"clip_max_norm": [1.0] * 40, "grad_norm_source": [2] * 40}
    process = make.process(steps, facts=facts, optimizers=optimizers, models=DDP, evals={}, more={"parameters": rows})
    process.name = f"rank{number:05d}"
    return process


def table(make: Any, *processes: Any) -> dict[str, Any]:
    return {one.name: one for one in diagnose(make.run(*processes)).ranks}


def test_ranks_that_agree(make) -> None:
    told = table(make, *(rank(make, number, clip=2.0) for number in range(4)))
    assert {one.state for one in told.values()} == {"agree"}
    assert {"Weights", "Gradients", "Clipping", "Samples per batch", "Optimizer", "Software and device"} <= told.keys()
    assert all(one.ranks == [] for one in told.values())


def test_the_rank_that_parts_is_named_with_the_step(make) -> None:
    others = [rank(make, number) for number in (0, 1, 3)]
    told = table(make, *others, rank(make, 2, APART, APART))
    assert (told["Weights"].state, told["Weights"].ranks, told["Weights"].since) == ("odd", [2], 16)
    assert (told["Gradients"].state, told["Gradients"].ranks, told["Gradients"].since) == ("odd", [2], 16)


def test_of_two_ranks_neither_is_the_odd_one(make) -> None:
    told = table(make, rank(make, 0), rank(make, 1, APART, APART))
    assert (told["Weights"].state, told["Weights"].ranks) == ("odd", [0, 1])


def test_settings_that_differ(make) -> None:
    told = table(make, *(rank(make, number) for number in (0, 1, 2)), rank(make, 3, APART, decay=0.0))
    assert (told["Optimizer"].state, told["Optimizer"].ranks) == ("odd", [3])
    assert told["Optimizer"].said == "weight_decay 0.1 on ranks 0, 1 and 2; 0.0 on rank 3"
    assert told["Gradients"].state == "agree"


def test_other_software_and_other_batches(make) -> None:
    told = table(make, *(rank(make, n) for n in (0, 1, 2)), rank(make, 3, batch=24, facts={"torch": "2.12.0"}))
    assert (told["Software and device"].state, told["Software and device"].ranks) == ("odd", [3])
    assert "2.12.0 on rank 3" in told["Software and device"].said
    assert (told["Samples per batch"].state, told["Samples per batch"].ranks) == ("odd", [3])


def test_clips_by_norms_of_their_own(make) -> None:
    told = table(make, *(rank(make, number, clip=2.0) for number in (0, 1, 2)), rank(make, 3, clip=4.0))
    assert (told["Clipping"].state, told["Clipping"].ranks, told["Clipping"].since) == ("odd", [3], 1)


@pytest.mark.parametrize(
    ("norms", "gradients", "weights"),
    [
        ([one + 1 for one in NORMS], APART, "own"),  # parts of one model
        ([4.7, 4.71, 4.73, 4.73, 4.75, 4.75], APART, "own"),  # averaged now and then
        (NORMS, APART, "agree"),  # gradients are averaged after the look at them
    ],
)
def test_differences_that_may_be(make, norms, gradients, weights) -> None:
    told = table(make, rank(make, 0), rank(make, 1, norms, gradients))
    assert told["Weights"].state == weights
    assert told["Gradients"].state == "own"


def test_a_run_of_one_rank_has_no_table(make) -> None:
    assert diagnose(make.run(rank(make, 0))).ranks == []
    assert "ranks" not in diagnose(make.run(make.process())).to_dict()


def test_many_kinds_cost_little(make) -> None:
    kinds = agreement._kinds(range(1000), lambda a, b: a == b)
    assert len(kinds) == agreement.MOST_KINDS + 1
    assert agreement._unlike(kinds) == list(range(1000)), "no majority"


def test_reports_show_the_table(make) -> None:
    diagnosis = diagnose(make.run(*(rank(make, n) for n in (0, 1, 3)), rank(make, 2, APART, APART)))
    page = render(diagnosis, "html")
    assert 'id="ranks"' in page
    assert "Ranks that should agree" in page
    assert "equal at step 1, and no longer from step 16 on" in page
    text = " ".join(render(diagnosis, "text").split())
    assert "Ranks, weights (rank 2, since step 16): norms of the tensors" in text
    assert "- Ranks, weights (rank 2, since step 16)" in render(diagnosis, "markdown")
    assert diagnosis.to_dict()["ranks"][0]["state"] == "odd"
