"""Ranks that train in phases: what one did by itself before, and what is unfrozen later without a wrapper."""

from __future__ import annotations

import math
from typing import Any

import pytest

LOOKS = (1, 2, 11, 16, 24, 36)
NORMS = [4.7, 4.71, 4.72, 4.73, 4.74, 4.75]
APART = [4.7, 4.71 + 1e-4, 4.72 + 2e-4, 4.73 + 1e-3, 4.74 + 2e-3, 4.75 + 4e-3]
FROZEN = [math.nan] * 3
LIST_LINE = "self.params = [p for p in model.parameters() if p.requires_grad]"


def judged(make: Any, *processes: Any) -> Any:
    return make.check("ranks-out-of-sync", *processes)


def rank(make: Any, number: int, tensors: dict[str, list[float]], before: tuple[int, ...] = (), *, mixed: bool = False,
         after: int = 0, **more: Any) -> Any:  # fmt: skip
    """A rank whose last optimizer makes 100 steps, behind (or, `mixed`, beside) others with so many steps each."""
    counts = [*before, 100, *([after] if after else [])]
    shared = len(before)
    order = [(index, step) for index, count in enumerate(counts) for step in range(1, count + 1)]
    order = sorted(order, key=lambda one: one[1]) if mixed else order
    steps = {
        "optimizer": [index for index, _ in order],
        "step": [step for _, step in order],
        "time": [float(at) for at in range(len(order))],
        "loss": [1.0 / step for _, step in order],
    }
    optimizers = [{"optimizer": index, "name": "Adam", "options": "{}"} for index in range(len(counts))]
    rows = [
        {"step": step, "optimizer": shared, "parameter": name, "weight_norm": norms[at], "lr": 0.01}
        for at, step in enumerate(LOOKS)
        for name, norms in tensors.items()
        if math.isfinite(norms[at])
    ]
    rows += [
        {"step": step, "optimizer": index, "parameter": name, "weight_norm": 9.0 + step, "lr": 0.1}
        for index in range(len(counts))
        for step in LOOKS
        for name in tensors
        if index != shared
    ]
    process = make.process(steps, optimizers=optimizers, facts={"rank": number}, more={"parameters": rows}, **more)
    process.name = f"rank{number:05d}"
    return process


def test_a_pretraining_of_one_rank_is_a_phase_of_its_own(make) -> None:
    own, other = {"l.weight": NORMS}, {"l.weight": APART}
    for before, after in (((40,), ()), ((), (40,)), ((40,), (30, 20))):
        status, _, finding = judged(make, rank(make, 0, own, before), rank(make, 1, other, after))
        assert (status, finding.ranks) == ("fired", [0, 1])
        assert judged(make, rank(make, 0, own, before), rank(make, 1, own, after))[0] == "passed"


@pytest.mark.parametrize(
    "shape",
    [
        {"before": (100,), "mixed": True},  # two optimizers that take turns
        {"before": (100, 100)},  # rounds, with an optimizer for each, as in federated training
        {"before": (400,)},  # mostly something else
        {"before": (), "after": 30},  # and something behind it: another round, or a probe
    ],
)
def test_optimizers_that_are_no_phases_before_the_last_one(make, shape) -> None:
    own, other = rank(make, 0, {"l.weight": NORMS}, **shape), rank(make, 1, {"l.weight": APART}, **shape)
    assert judged(make, own, other)[0] == "skipped"


def test_layers_that_are_unfrozen_without_a_wrapper(make) -> None:
    sites = [{"site": 0, "role": "trainable", "file": "train.py", "line": 21, "function": "__init__",
              "source": LIST_LINE}]  # fmt: skip
    body, apart = [*FROZEN, 2.5, 2.6, 2.7], [*FROZEN, 2.5 + 1e-3, 2.6 + 2e-3, 2.7 + 5e-3]
    own = rank(make, 0, {"head.weight": NORMS, "body.weight": body}, sites=sites)
    status, _, finding = judged(make, own, rank(make, 1, {"head.weight": NORMS, "body.weight": apart}))
    assert (status, finding.first_step, finding.location.line) == ("fired", LOOKS[3], 21)
    assert finding.title == "1 tensor, unfrozen later, drifts apart on 2 ranks: nothing averages its gradients"
    assert "DistributedDataParallel" not in finding.summary + finding.fix
    assert judged(make, own, rank(make, 1, {"head.weight": NORMS, "body.weight": body}))[0] == "passed"


def test_what_only_stands_still_later_is_averaged_by_nobody(make) -> None:
    """Ranks that part on purpose after a phase in common: nothing shows that gradients are averaged from then on."""
    still = [*NORMS[:3], NORMS[3], NORMS[3], NORMS[3]]
    body, apart = [*FROZEN, 2.5, 2.6, 2.7], [*FROZEN, 2.5 + 1e-3, 2.6 + 2e-3, 2.7 + 5e-3]
    own, other = ({"head.weight": still, "body.weight": norms} for norms in (body, apart))
    assert judged(make, rank(make, 0, own), rank(make, 1, other))[0] == "passed"


@pytest.mark.parametrize(
    ("source", "known"),
    [
        (LIST_LINE, True),
        ("trained = [p for _, p in model.named_parameters() if p.requires_grad]", True),
        ("count = sum(p.numel() for p in model.parameters() if p.requires_grad)", False),
        ("opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)", False),
        ("if any(p.requires_grad for p in model.parameters()):", False),
    ],
)
def test_the_line_that_keeps_what_is_averaged(make, source, known) -> None:
    sites = [{"site": 0, "role": "trainable", "file": "train.py", "line": 21, "function": "f", "source": source}]
    body, apart = [*FROZEN, 2.5, 2.6, 2.7], [*FROZEN, 2.5 + 1e-3, 2.6 + 2e-3, 2.7 + 5e-3]
    own = rank(make, 0, {"head.weight": NORMS, "body.weight": body}, sites=sites)
    finding = judged(make, own, rank(make, 1, {"head.weight": NORMS, "body.weight": apart}))[2]
    assert ((finding.location.line if finding.location else None) == 21) == known
