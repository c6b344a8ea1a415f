"""What a log of reinforcement training tells: rewards, entropy, completions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analyzers.curves import log, scalars

RISING = np.linspace(0.1, 0.9, 100)
FLAT = np.full(100, 0.5)
SINKING = np.r_[np.geomspace(1.0, 0.2, 40), np.full(60, 0.2)]
WORSE = np.r_[np.linspace(0.45, 0.75, 50), np.linspace(0.75, 0.25, 90), np.full(60, 0.25)]
UNREST = np.random.default_rng(0).normal(size=100)
SOLVED = np.r_[np.linspace(0.1, 1.0, 40), np.ones(60)]


@pytest.mark.parametrize(
    ("rule", "curves", "status"),
    [
        ("zero-advantage", {"reward": FLAT, "reward_std": np.zeros(100)}, "fired"),
        ("zero-advantage", {"reward": RISING, "reward_std": np.full(100, 0.3)}, "passed"),
        ("zero-advantage", {"reward": RISING, "frac_reward_zero_std": np.tile([1.0, 0.0, 0.5], 34)[:100]}, "passed"),
        (
            "zero-advantage",
            {"reward": np.r_[RISING[:40], np.ones(60)], "reward_std": np.r_[FLAT[:40], np.zeros(60)]},
            "passed",
        ),  # solved
        ("zero-advantage", {"reward": RISING}, "skipped"),
        ("completions-truncated", {"reward": FLAT, "completions__clipped_ratio": np.full(100, 0.97)}, "fired"),
        ("completions-truncated", {"reward": FLAT, "completions__clipped_ratio": np.full(100, 0.4)}, "passed"),
        ("completions-truncated", {"reward": FLAT}, "skipped"),
        ("completions-truncated", {"reward": FLAT[:3], "completions__clipped_ratio": np.ones(3)}, "skipped"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.geomspace(2, 0.01, 100)}, "fired"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.geomspace(0.5, 5, 100)}, "fired"),
        ("entropy-collapse", {"reward": RISING, "entropy": np.geomspace(2, 0.01, 100)}, "passed"),
        ("entropy-collapse", {"reward": FLAT, "entropy": np.linspace(2, 1, 100)}, "passed"),
        ("entropy-collapse", {"entropy": np.linspace(2, 1, 100)}, "skipped"),
        ("reward-collapse", {"reward": np.r_[RISING, np.full(100, 0.1)], "kl": np.r_[FLAT, 20 * FLAT]}, "fired"),
        ("reward-collapse", {"reward": np.r_[RISING, np.full(100, 0.1)], "kl": np.r_[FLAT, FLAT]}, "passed"),
        ("reward-collapse", {"reward": np.r_[RISING, RISING], "kl": np.linspace(0.01, 1, 200)}, "passed"),
        (
            "reward-collapse",
            {"reward": WORSE, "kl": np.linspace(0.3, 0.9, 200)},
            "fired",
        ),  # than it began, ever further
        ("reward-collapse", {"reward": WORSE, "kl": 0.6 + 0.3 * np.sin(np.arange(200) / 20)}, "passed"),
        ("reward-collapse", {"reward": np.maximum(WORSE, 0.43), "kl": np.linspace(0.3, 0.9, 200)}, "passed"),
        ("reward-collapse", {"reward": RISING[:30]}, "skipped"),
        ("reward-collapse", {"reward": SINKING, "kl": 1.1 - SINKING}, "fired"),  # from the start on: a wrong sign
        ("reward-collapse", {"reward": SINKING, "kl": FLAT}, "passed"),
        ("reward-collapse", {"reward": SINKING}, "passed"),
        ("reward-collapse", {"reward": 5 + 0.1 * SINKING, "kl": 5 - SINKING}, "passed"),  # a good policy explores
        ("reward-collapse", {"reward": FLAT + 0.1 * UNREST, "kl": np.geomspace(0.01, 5, 100)}, "passed"),
        ("reward-collapse", {"ppo__reward": np.r_[RISING, FLAT * 0.2], "ppo__kl": np.r_[FLAT, 20 * FLAT]}, "fired"),
        ("reward-collapse", {"charts__episodic_return": np.r_[RISING, RISING + 0.8]}, "passed"),
        ("reward-collapse", {"eval__mean_reward": np.r_[RISING, FLAT * 0.2]}, "skipped"),
        ("entropy-collapse", {"charts__ep_return": FLAT, "losses__entropy": np.geomspace(2, 0.01, 100)}, "fired"),
        ("entropy-collapse", {"charts__ep_return": SOLVED, "losses__entropy": np.geomspace(2, 0.01, 100)}, "passed"),
        ("sampler-mismatch", {"sampling__sampling_logp_difference__mean": np.linspace(0.02, 0.4, 100)}, "fired"),
        ("sampler-mismatch", {"sampling__sampling_logp_difference__mean": np.full(100, 0.1)}, "passed"),
        ("sampler-mismatch", {"sampling__importance_sampling_ratio__mean": np.full(100, 0.6)}, "fired"),
        ("sampler-mismatch", {"sampling__importance_sampling_ratio__mean": np.full(100, 1.01)}, "passed"),
        ("sampler-mismatch", {"reward": RISING}, "skipped"),
    ],
)
def test_columns_of_reinforcement_training(make, rule, curves, status) -> None:
    assert make.check(rule, log(make, np.zeros(200), more=scalars(**curves)))[0] == status


@pytest.mark.parametrize(
    ("reward", "severity", "confidence"), [(FLAT, "warning", "likely"), (RISING, "info", "possible")]
)
def test_cut_off_completions_are_a_hint_where_the_reward_rises(make, reward, severity, confidence) -> None:
    """A rising reward does not tell an answer of fixed length from one that never learns to stop."""
    process = log(make, np.zeros(200), more=scalars(reward=reward, completions__clipped_ratio=np.ones(100)))
    _, _, finding = make.check("completions-truncated", process)
    assert "GRPOConfig" in finding.fix_code
    place = {"site": 9, "role": "setting", "file": "a.py", "line": 88, "source": "max_completion_length=8,"}
    rows = scalars(reward=reward, completions__clipped_ratio=np.ones(100))
    known = make.check("completions-truncated", log(make, np.zeros(200), more=rows, sites=[place]))[2]
    assert known.location.line == 88
    assert "max_completion_length=16," in known.fix_code, "twice its own, which may be all that the model can hold"
    assert (finding.severity, finding.confidence) == (severity, confidence)
    assert ("rises anyway" in finding.summary) == (severity == "info")


@pytest.mark.parametrize(("source", "line"), [("trainer.train()", 60), ("loss.backward()", 90)])
def test_a_collapse_of_the_reward_in_a_trainer_is_changed_at_its_learning_rate(make, source: str, line: int) -> None:
    sites = [
        {"site": 8, "role": "setting", "file": "a.py", "line": 60, "source": "learning_rate=5e-2,"},
        {"site": 9, "role": "backward", "file": "a.py", "line": 90, "source": source},
    ]
    curves = scalars(reward=np.r_[RISING, np.full(100, 0.1)], kl=np.r_[FLAT, 20 * FLAT])
    _, _, finding = make.check("reward-collapse", log(make, np.zeros(200), more=curves, sites=sites))
    assert finding.location.line == line
    away = scalars(reward=SINKING, kl=1.1 - SINKING)  # a wrong sign is no matter of the rate
    _, _, finding = make.check("reward-collapse", log(make, np.zeros(200), more=away, sites=sites))
    assert finding.location is None or finding.location.line == 90


@pytest.mark.parametrize(("first", "lost"), [(0.0, True), (0.3, True), (0.8, False), (1.0, False)])
def test_completions_that_ended_by_themselves_at_first_had_room(make, first: float, lost: bool) -> None:
    cut = np.r_[np.full(20, first), np.ones(80)]
    sites = [
        {"site": 7, "role": "setting", "file": "a.py", "line": 60, "source": "learning_rate=5e-2,"},
        {"site": 8, "role": "setting", "file": "a.py", "line": 61, "source": "max_completion_length=8,"},
        {"site": 9, "role": "backward", "file": "a.py", "line": 90, "source": "trainer.train()"},
    ]
    curves = scalars(reward=FLAT, completions__clipped_ratio=cut)
    _, _, finding = make.check("completions-truncated", log(make, np.zeros(200), more=curves, sites=sites))
    assert finding.location.line == (60 if lost else 61)
    assert ("the limit had room for them" in finding.summary) is lost
    assert ("the model never learned to stop" in finding.summary) is not lost
    assert bool(finding.fix_code) is not lost, "a longer limit is no remedy for an end that was lost"


@pytest.mark.parametrize(
    ("name", "values", "severity"),
    [
        ("answer", np.zeros(100), "warning"),
        ("answer", np.r_[np.full(10, 0.1), np.zeros(90)], "warning"),
        ("answer", np.full(100, 0.01), "info"),  # small, and earned all the time
        ("overlong_penalty", np.zeros(100), "info"),  # as it is to be
    ],
)
def test_a_reward_that_is_not_earned_where_all_completions_are_cut_off(make, name, values, severity) -> None:
    curves = {"reward": RISING, "completions__clipped_ratio": np.ones(100), "rewards__steps__mean": RISING}
    process = log(make, np.zeros(200), more=scalars(**curves, **{f"rewards__{name}__mean": values}))
    _, _, finding = make.check("completions-truncated", process)
    assert (finding.severity, f"yet {name} gave 0" in finding.summary) == (severity, severity == "warning")


@pytest.mark.parametrize(("rewards", "severity"), [([0.5] * 6, "warning"), ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "info")])
def test_completions_of_ten_steps_are_logged_at_once(make, rewards, severity) -> None:
    rows = [
        {"step": 10 * n, "own_step": 10 * n, "phase": "train", "name": name, "value": value}
        for n, reward in enumerate(rewards, 1)
        for name, value in (("reward", reward), ("completions/clipped_ratio", 1.0))
    ]
    _, _, finding = make.check("completions-truncated", log(make, np.zeros(60), more={"scalars": rows}))
    assert finding.severity == severity
