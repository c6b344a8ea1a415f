"""A gradient penalty that is computed beside the critic's loss, and is no part of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import lines_of
from tracelyze.analyzers.rules.gradients.exploding_gradients import left_out_penalties

STEP = """\
def gradient_penalty(self, real, fake):
    slope, = autograd.grad(self.critic(mix).sum(), mix, create_graph=True)
    return {returned}

def critic_step(self, real):
    distance = self.critic(real).mean() - self.critic(fake).mean()
    {first}
    {second}
    loss.backward()
    self.opt_c.step()"""
PENALTY = "penalty = self.gradient_penalty(real, fake)"
SQUARE = "((slope.norm(dim=1) - 1) ** 2).mean()"


def found(make: Any, first: str, second: str, returned: str = SQUARE) -> Any:
    sites = lines_of(STEP.format(first=first, second=second, returned=returned), backward="loss.backward()")
    sites += lines_of(sites[0]["excerpt"], measured="return ")
    sites[1] |= {"site": 8, "function": "gradient_penalty"}
    steps = make.steps() | {"backward_site": [0] * 400}
    return left_out_penalties.of(make.process(steps, sites=sites).longest)


@pytest.mark.parametrize(
    ("first", "second", "returned", "place", "added"),
    [
        (PENALTY, "loss = -distance", SQUARE, 8, "loss = -distance + 10 * penalty"),
        (PENALTY, "loss = -distance", f"self.weight * {SQUARE}", 8, "loss = -distance + penalty"),
        ("gp = gp(real, fake)", "loss = -distance", SQUARE, 8, None),  # what it returns was not recorded
        ("loss = -distance", PENALTY, SQUARE, 7, None),
        ("gp = 10 * (slope.norm(2, 1) - 1).square().mean()", "loss = -distance", SQUARE, 8, "loss = -distance + gp"),
        (
            "slope_penalty = relu(slope - 1) ** 2",
            "loss = made - real",
            SQUARE,
            8,
            "loss = made - real + 10 * slope_penalty",
        ),
    ],
)
def test_the_loss_that_leaves_the_penalty_out(
    make: Any, first: str, second: str, returned: str, place: int, added: str | None
) -> None:
    remedy = found(make, first, second, returned)
    assert remedy.place.line == place
    assert (remedy.diff.added[0].strip() if remedy.diff else None) == added
    assert remedy.code.startswith("loss = loss + ")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (PENALTY, "loss = -distance + penalty"),
        ("loss = -distance", "loss = loss + self.gradient_penalty(real, fake)"),
        ("loss = -distance", "x = to_gpu(real)"),
        ("penalty_weight = 10.0", "loss = -distance"),
        ("gp = 0.0", "loss = -distance"),
        ("loss = -distance", "pass"),
    ],
)
def test_a_penalty_that_is_used(make: Any, first: str, second: str) -> None:
    assert found(make, first, second) is None
