"""gradient-spikes, where norms are known beside leaps of the loss for the most part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rules.gradients.gradient_spikes import norm_spikes

MANY = 1200  # steps


def looks(losses: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Norms as they are known: of the first steps, then of every 50th, and wherever the loss is six times its usual."""
    at = np.arange(MANY)
    return np.where((at < 100) | (at % 50 == 0) | (losses > 6 * np.median(losses)), norms, np.nan)


def test_norms_that_are_spikes_for_the_most_part_as_they_are_looked_at_where_the_loss_leaps(make) -> None:
    random = np.random.default_rng(5)
    losses, norms = np.exp(random.normal(0, 0.15, MANY)), np.exp(random.normal(0, 0.3, MANY))
    hard = np.sort(random.choice(np.arange(125, MANY - 1), 40, replace=False))
    hard[1] = hard[0] + 1  # two in a row, as chance has it
    rough = losses.copy(), norms.copy()
    rough[0][hard], rough[1][hard] = random.uniform(30, 400, len(hard)), random.uniform(30, 120, len(hard))
    steps = make.steps(MANY)

    def judged(loss: np.ndarray, norm: np.ndarray) -> Any:
        known = {"loss": loss.tolist(), "grad_norm": looks(loss, norm).tolist()}
        return make.check("gradient-spikes", make.process(steps | known, evals={}))

    status, _, finding = judged(*rough)
    assert (status, finding.severity) == ("fired", "warning")
    assert finding.title.startswith("Gradients spike at 40 steps, to ")
    usual = float(finding.fix_code.partition("max_norm=")[2].partition(")")[0]) / 2
    assert 0.7 < usual < 1.4, "what is usual is measured beside usual losses"
    assert judged(rough[0], norms)[0] == "passed", "losses alone"
    first = rough[1].copy()
    first[:20] = 70.0
    assert judged(rough[0], first)[0] == "passed", "no more than it bore at first"
    stays = losses.copy(), norms.copy()
    for at in range(150, MANY, 150):
        stays[0][at : at + 5], stays[1][at : at + 5] = 400.0, 50.0
    assert judged(*stays)[0] == "passed", "five in a row are a level"


@pytest.mark.parametrize("thickness", [0.7, 1.0, 2.0])
def test_tails_of_losses_are_no_other_data(thickness: float) -> None:
    """They thin out on their way up: between usual losses and the highest there are more than beyond."""
    limits = {"factor": 10.0, "sigmas": 8.0, "spikes": 3.0, "often": 0.05}
    for seed in range(100):
        random = np.random.default_rng(seed)
        tail = random.pareto(thickness, MANY) + 1
        norms = looks(tail, tail * np.exp(random.normal(0, 0.3, MANY)))
        rows = np.flatnonzero(np.isfinite(norms) & (np.arange(MANY) >= MANY // 10))
        assert norm_spikes.beside_losses(tail, norms, rows, MANY, limits) is None
