"""entropy-collapse where nobody logs an entropy: odds that were read off a policy's losses, beside rewards that are
logged, or held in variables."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

COUNT = 300
LOOKS = [*range(20), 24, 29, 44, 66, 99, 149, 224]  # as a short run has them
NOISE = np.random.default_rng(0).normal(0, 0.1, COUNT)
FALLS = np.maximum(1.6 * 0.9 ** np.arange(COUNT), 1e-4)
STANDS, SOLVED = 0.2 + NOISE, np.r_[np.linspace(0.2, 1, 60), np.ones(COUNT - 60)] + NOISE


def process(make: Any, entropy: Any, reward: Any, every: int = 1, **more: Any) -> Any:
    """A run of 300 steps whose reward is logged after every so many, by a count of its own."""
    usual = {"most": 1.609, "both_signs": True, "sign": 0.0} | more
    facts = [usual | {"entropy": float(entropy[n])} for n in LOOKS]
    for one, sign in zip(facts, np.tile([1.0, -1.0], len(facts)) if more.get("sign") == "turns" else (), strict=False):
        one["sign"] = float(sign)
    events = [
        {"kind": "policy-choices", "step": n, "text": json.dumps(one)} for n, one in zip(LOOKS, facts, strict=True)
    ]
    scalars = [
        {"step": n + 1, "own_step": 1000 * n, "phase": "train", "name": "reward", "value": float(reward[n])}
        for n in range(0, COUNT, every)
    ]
    return make.process(make.steps(COUNT), more={"events": events, "scalars": scalars})


def status(make: Any, *args: Any, **more: Any) -> str:
    return str(make.check("entropy-collapse", process(make, *args, **more))[0])


@pytest.mark.parametrize(
    ("entropy", "reward", "more"),
    [
        (FALLS, STANDS, {}),
        (FALLS, STANDS - np.linspace(0, 0.2, COUNT), {}),
        (FALLS, STANDS, {"every": 5}),
        (np.r_[1.6, 0.6, np.zeros(COUNT)], STANDS, {}),  # within two steps
        (FALLS, STANDS, {"both_signs": False, "sign": "turns"}),  # one choice at a time
        (0.3 * FALLS, np.r_[STANDS[:20] + 0.5, STANDS[20:]], {}),  # it was trained before, and has lost that
    ],
)
def test_a_policy_that_chooses_the_same_and_gains_nothing(make: Any, entropy: Any, reward: Any, more: Any) -> None:
    fired, _, finding = make.check("entropy-collapse", process(make, entropy, reward, **more))
    assert (fired, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "does not rise" in finding.title


@pytest.mark.parametrize(
    ("entropy", "reward", "more"),
    [
        (FALLS, SOLVED, {}),
        (FALLS, SOLVED, {"every": 25}),
        (np.r_[1.6, 1.2, np.zeros(COUNT)], np.r_[0.2, 1.0, 1.0 + NOISE], {}),  # solved at once
        (FALLS, np.r_[NOISE[:2], 0.9 + NOISE], {}),  # solved while the entropy has hardly changed
        (1.6 * np.geomspace(1, 0.4, COUNT), STANDS, {}),  # it goes on exploring
        (np.r_[FALLS[:100], np.full(COUNT, 1.0)], STANDS, {}),  # and does so again
        (FALLS, np.full(COUNT, 1.0), {}),  # the reward of a step: always the same
        (FALLS, 1e-7 * NOISE, {}),  # normalised
        (FALLS, np.r_[STANDS[:200], 0.9 + NOISE[200:]], {}),  # it has learned late
        (0.3 * FALLS, STANDS, {}),  # it was trained before: it may be as good as it gets
        (FALLS, STANDS, {"every": 200}),  # the reward is not known
    ],
)
def test_a_policy_that_is_certain_for_good_reason(make: Any, entropy: Any, reward: Any, more: Any) -> None:
    assert status(make, entropy, reward, **more) == "passed"


def test_what_is_no_policy(make: Any) -> None:
    assert status(make, FALLS, STANDS, both_signs=False) == "skipped"  # weights of samples
    assert status(make, FALLS, STANDS, both_signs=False, sign=-1.0) == "skipped"


def held(make: Any, variables: dict[str, tuple[str, Any, Any]], entropy: Any = FALLS, sign: float = 0.0) -> str:
    """A run that logs nothing. By name of a variable: the kind, means, and counts."""
    events = []
    for n in LOOKS:
        rewards = {
            name: {"kind": kind, "mean": float(mean[n]), "count": int(count[n]), "spread": 0.3}
            | {"sum": float(mean[n]) if kind == "number" else float(mean[n] * count[n])}
            for name, (kind, mean, count) in variables.items()
        }
        facts = {"entropy": float(entropy[n]), "most": 1.609, "both_signs": True, "sign": sign, "rewards": rewards}
        events.append({"kind": "policy-choices", "step": n, "text": json.dumps(facts)})
    return str(make.check("entropy-collapse", make.process(make.steps(COUNT), more={"events": events}))[0])


AT_ONCE = np.r_[1.6, 0.6, np.zeros(COUNT)]
ONE, TWELVE, SO_FAR = np.ones(COUNT), np.full(COUNT, 12), np.minimum(np.arange(1, COUNT + 1), 100)
LENGTHS = np.random.default_rng(1).integers(8, 30, COUNT)


@pytest.mark.parametrize("entropy", [AT_ONCE, np.maximum(1.6 * 0.6 ** np.arange(COUNT), 1e-4)])
def test_rewards_in_variables(make: Any, entropy: Any) -> None:
    assert held(make, {"rewards": ("list", STANDS, TWELVE)}, entropy) == "fired"
    assert held(make, {"ep_reward": ("number", STANDS, ONE)}, entropy) == "fired"
    assert held(make, {"batch_rewards": ("elements", STANDS, TWELVE)}, entropy) == "fired"
    assert held(make, {"ep_returns": ("list", STANDS, SO_FAR)}, entropy) == "fired"
    both = {"rewards": ("list", STANDS, TWELVE), "running_reward": ("number", SOLVED, ONE)}
    assert held(make, both, entropy) == "fired"


COSTS = -np.minimum(np.arange(1.0, COUNT + 1), 40 + NOISE)


@pytest.mark.parametrize(
    ("variables", "outcome"),
    [
        ({"rewards": ("list", SOLVED, TWELVE)}, "passed"),
        ({"rewards": ("list", STANDS, TWELVE), "ep_reward": ("number", SOLVED, ONE)}, "passed"),
        ({"rewards": ("list", np.r_[STANDS[:60], 0.9 + NOISE[60:]], TWELVE)}, "passed"),  # it has learned late
        ({"rewards": ("list", ONE, 20 * SO_FAR * LENGTHS)}, "passed"),  # one for each step that it stands: longer ones
        ({"rewards": ("list", NOISE, TWELVE)}, "passed"),  # a baseline was taken from them
        ({"rewards": ("list", ONE, TWELVE)}, "skipped"),  # one for each step
        ({"rewards": ("list", STANDS, 12 * (1 + np.arange(COUNT)))}, "skipped"),  # those of all steps so far
        ({"reward": ("number", STANDS, ONE)}, "skipped"),  # of the last step
        ({"running_reward": ("number", -np.linspace(0, 9, COUNT) + NOISE, ONE)}, "skipped"),  # from zero on
        ({"ep_reward": ("number", COSTS, ONE)}, "skipped"),  # a sum that still runs
        ({"returns": ("elements", STANDS, TWELVE)}, "skipped"),  # with what a value function expects
        ({"rewards": ("elements", 1e-8 * NOISE, TWELVE)}, "skipped"),  # normalised
        ({}, "skipped"),
    ],
)
def test_rewards_in_variables_that_rise_or_tell_nothing(make: Any, variables: Any, outcome: str) -> None:
    assert held(make, variables, AT_ONCE) == outcome


def test_an_episode_that_is_under_way(make: Any) -> None:
    """One update for each choice: what is held of its rewards is a part of them."""
    assert held(make, {"ep_reward": ("number", STANDS, ONE)}, AT_ONCE, sign=1.0) == "skipped"
    assert held(make, {"rewards": ("list", STANDS, TWELVE)}, AT_ONCE, sign=1.0) == "skipped"
    assert held(make, {"ep_rewards": ("list", STANDS, SO_FAR)}, AT_ONCE, sign=1.0) == "fired"
