"""Clips that each rank makes by the norm of its own part, or of the whole model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.rules.distributed.paced_ranks import COUNT, named, rank
from tracelyze.analyzers.rules.distributed.clip_differs_by_rank import clip_norms


def clips(make: Any, norms: tuple[float, float], losses: tuple[float, float] = (1.0, 1.0), limit: float = 1.0) -> Any:
    """Two ranks: the norms by which they clip, and the scale of their losses."""
    ranks = [
        rank(
            make,
            number,
            loss=[losses[number] * (2.0 + 0.01 * step) for step in range(COUNT)],
            grad_norm=[norms[number]] * COUNT,
            grad_norm_source=[2] * COUNT,
            clip_max_norm=[limit] * COUNT,
        )
        for number in (0, 1)
    ]
    return make.check("clip-differs-by-rank", *named(*ranks))


def test_parts_of_one_model_that_are_clipped_apart(make) -> None:
    _, _, finding = clips(make, (4.0, 2.0))
    assert (finding.severity, finding.ranks) == ("critical", [0, 1])
    assert "by 50%" in finding.title, "coefficients of 1/4 and 1/2"
    assert "(4 and 2 at step 1)" in finding.summary
    assert "scale = (max_norm /" in finding.fix_code


@pytest.mark.parametrize(
    ("source", "limit", "last"),
    [
        ("norm = nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)", "cfg.clip", "norm = squares.sqrt()"),
        ("clip_grad_norm_(net.parameters(), max_norm=0.5)", "0.5", "        p.grad.mul_(scale)"),
        ("clip_grad_norm_(net.parameters(), 2 * base)", "(2 * base)", "        p.grad.mul_(scale)"),
    ],
)
def test_a_clip_by_the_norm_of_the_whole_model_in_own_words(make, source: str, limit: str, last: str) -> None:
    site = {"site": 9, "role": "clip", "file": "t.py", "line": 4, "function": "main", "source": source}
    code = clip_norms.example(make.process(sites=[site | {"excerpt_line": 4, "excerpt": f"    {source}"}]))
    assert "for p in net.parameters():" in code
    assert f"scale = ({limit} / (squares" in code
    assert code.split("\n")[-1] == last


@pytest.mark.parametrize(
    ("norms", "losses", "limit"),
    [
        ((4.0, 4.0), (1.0, 1.0), 1.0),  # one norm for the whole model
        ((4.0, 2.0), (1.0, 1.3), 1.0),  # other data: trainings of their own
        ((0.4, 0.2), (1.0, 1.0), 1.0),  # nothing is clipped
    ],
)
def test_clips_that_are_as_they_should_be(make, norms, losses, limit) -> None:
    assert clips(make, norms, losses, limit)[0] == "passed"


@pytest.mark.parametrize(("same_batches", "status"), [(True, "fired"), (False, "passed")])
def test_clips_that_differ_have_the_losses_of_one_model_drift_apart(make, same_batches: bool, status: str) -> None:
    """A model that is split over ranks: the loss is one at first; other batches have changes of their own."""
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.1, (2, COUNT))
    own = noise[[0, 0]] if same_batches else noise
    losses = 3 * np.exp(-np.arange(COUNT) / 100) * np.exp(own + [[0.0], [0.1]] * (np.arange(COUNT) / COUNT))
    losses[:, 0] = 3.0
    clipped = {"grad_norm_source": [2] * COUNT, "clip_max_norm": [1.0] * COUNT}
    ranks = [
        rank(make, number, loss=losses[number].tolist(), grad_norm=[4.0 - number] * COUNT, **clipped)
        for number in (0, 1)
    ]
    assert make.check("clip-differs-by-rank", *named(*ranks))[0] == status


NAMES = ("embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias", "up.weight", "down.weight")
COPIES = {"embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"}


def parts_of_a_model(make: Any, factor: float, copies: set[str], own: float = 0.0) -> Any:
    """Two ranks with copies of some tensors, beside parts; `factor`: of the second rank's gradients of the copies.

    `own`: by how much gradients of equal weights differ besides, one from the other, as those of unlike batches do.
    """
    random = np.random.default_rng(7)
    weights = random.uniform(1, 3, (2, len(NAMES)))
    gradients = random.uniform(0.01, 1, len(NAMES)) * np.exp(own * random.normal(0, 1, (2, len(NAMES))))
    rows = [
        [
            {
                "step": 1,
                "parameter": name,
                "weight_norm": 0.0 if name == "norm.bias" else float(weights[0 if name in copies else number, place]),
                "grad_norm": float(gradients[number, place]) * (factor if number and name in copies else 1.0),
            }
            for place, name in enumerate(NAMES)
        ]
        for number in (0, 1)
    ]
    ranks = [rank(make, number, tables={"parameters": rows[number]}) for number in (0, 1)]
    return make.check("clip-differs-by-rank", *named(*ranks))


def test_copies_whose_gradients_one_rank_scales(make) -> None:
    _, _, finding = parts_of_a_model(make, 3.9, COPIES)
    assert (finding.severity, finding.ranks, finding.first_step) == ("critical", [0, 1], 1)
    assert finding.title == "Rank 1 scales gradients of shared weights by 3.9 against rank 0"


@pytest.mark.parametrize(
    ("factor", "copies", "own"),
    [
        (1.0, COPIES, 0.0),  # clipped alike
        (3.9, set(NAMES), 0.0),  # no parts: trials of one script with other settings, or data-parallel
        (3.9, COPIES, 0.3),  # stages of a pipeline that were seeded alike: gradients of their own
        (3.9, {"norm.bias", "norm.weight"}, 0.0),  # too few to tell a factor from chance
    ],
)
def test_copies_that_are_as_they_should_be(make, factor: float, copies: set[str], own: float) -> None:
    assert parts_of_a_model(make, factor, copies, own)[0] != "fired"
