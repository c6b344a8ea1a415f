"""Rewards in variables of the script that runs: read by names that say so, and nothing else."""

from __future__ import annotations

import os
import sys
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.collectors.program.consumed.held_rewards import HeldRewards  # noqa: E402


@pytest.fixture(autouse=True)
def own_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file is the script."""
    place = "tracelyze.collectors.program.call_sites.is_library"
    monkeypatch.setattr(place, lambda name: os.path.normpath(name) != str(Path(__file__)))


def read(frame: FrameType) -> dict[str, tuple[str, float, float, int]]:
    found = HeldRewards(torch).read(frame)
    return {name: (one["kind"], one["mean"], one["sum"], one["count"]) for name, one in found.items()}


class Agent:
    def __init__(self) -> None:
        self.rewards, self.saved_log_probs = [1.0, 2.0, 0.0], [0.5]

    def learn(self) -> Any:
        returns = torch.tensor([0.0, 3.0])
        return read(sys._getframe()), returns


def several() -> tuple[dict[str, Any], list[Any]]:  # without `assert`, for which pytest asks for all variables
    ep_reward, reward, batch_rewards = 3, 0.5, torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    episode_returns, total_reward = deque([float(one) for one in range(100)], maxlen=100), torch.tensor(4.0)
    return read(sys._getframe()), [ep_reward, reward, batch_rewards, episode_returns, total_reward]


def test_numbers_lists_and_elements() -> None:
    found, _ = several()
    assert found == {
        "ep_reward": ("number", 3.0, 3.0, 1),
        "reward": ("number", 0.5, 0.5, 1),
        "batch_rewards": ("elements", 3.0, 12.0, 4),
        "episode_returns": ("list", 67.5, 4950.0, 100),  # the mean of the latest ones
        "total_reward": ("number", 4.0, 4.0, 1),
    }


def of_an_agent() -> tuple[dict[str, Any], dict[str, Any], float]:
    ep_return = 7.0
    found, _ = Agent().learn()
    policy = torch.nn.Linear(1, 1)
    policy.rewards = [torch.tensor(2.0), torch.tensor([4.0])]
    return found, read(sys._getframe()), ep_return


def test_an_agents_own_and_its_callers() -> None:
    found, later, _ = of_an_agent()
    assert found["rewards"] == ("list", 1.0, 3.0, 3)
    assert found["returns"][:2] == ("elements", 1.5)
    assert found["ep_return"] == ("number", 7.0, 7.0, 1)
    assert later["rewards"] == ("list", 3.0, 6.0, 2)


class Odd:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the program's own code ran")


def others() -> tuple[dict[str, Any], list[Any]]:
    rewards, returns, reward, step_reward = [Odd()], Odd(), "none", True
    mean_reward, ep_reward, total_rewards = None, [], torch.zeros(2, device="meta")
    eval_reward, train_rewards = 4.0, {"first": 1.0}
    kept = [rewards, returns, reward, step_reward, mean_reward, ep_reward, total_rewards, eval_reward, train_rewards]
    return read(sys._getframe()), kept


def test_what_is_not_read() -> None:
    assert others()[0] == {}


def weighed() -> tuple[dict[str, Any], list[Any]]:
    scores, group, other = torch.tensor([[0.0, 0.0], [0.0, 0.0]]), 2, torch.ones(3)
    baseline = scores.mean(1, keepdim=True)
    adv = ((scores - baseline) / group).view(-1)
    held = HeldRewards(torch)
    named = held.read(sys._getframe())
    return {name: (one["mean"], one["spread"]) for name, one in held.weighed.items()}, [adv, other, named]


def test_what_advantages_are_made_of() -> None:
    found, (*_, named) = weighed()
    assert found == {"scores": (0.0, 0.0), "baseline": (0.0, 0.0)}
    assert named == {}, "no name of rewards"
