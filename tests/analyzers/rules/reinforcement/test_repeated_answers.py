"""Answers that are drawn once for each prompt and then repeated for its group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import lines_of
from tracelyze.analyzers.rules.reinforcement.zero_advantage import repeated_answers

ROLLOUT = """\
def rollout(self):
    prompts = self.prompts(16)
    {above}
    answers = self.policy.sample({given})
    {below}
    rewards = reward_of(prompts, answers)
    advantages = rewards - rewards.mean(1, keepdim=True)"""
BOTH = "prompts, answers = (x.repeat_interleave(self.group, 0) for x in (prompts, answers))"


def found(make: Any, above: str, below: str, given: str = "prompts") -> Any:
    text = ROLLOUT.format(above=above, below=below, given=given)
    return repeated_answers.of(make.process(sites=lines_of(text, advantage="advantages =")))


@pytest.mark.parametrize("below", [BOTH, "answers = answers.repeat(8, 1)"])
def test_what_is_repeated_behind_the_draw(make: Any, below: str) -> None:
    remedy = found(make, "pass", below)
    assert remedy.place.line == 5
    assert "Line 4 draws `answers`, and line 5 repeats what was drawn" in remedy.why
    assert remedy.code.split("  #")[0] == "prompts = prompts.repeat_interleave(group, 0)"
    assert found(make, "pass", below, "self.prompts(3)").code == "answers = self.policy.sample(self.prompts(3))"


@pytest.mark.parametrize(
    ("above", "below"),
    [
        ("prompts = prompts.repeat_interleave(8, 0)", "pass"),  # before the draw, as it should be
        ("pass", "prompts = prompts.repeat_interleave(8, 0)"),  # of prompts alone: the sampler may draw several
        ("pass", "padded = answers.repeat(8, 1)"),  # under a name of its own
        ("actions = self.policy.sample(prompts)", BOTH),  # which of the two?
    ],
)
def test_what_may_well_differ_within_a_group(make: Any, above: str, below: str) -> None:
    assert found(make, above, below) is None


def test_prompts_that_are_drawn_and_repeated(make: Any) -> None:
    text = ROLLOUT.format(above="prompts = pool.sample(16)", below="prompts = prompts.repeat(8, 1)", given="prompts")
    text = text.replace("self.policy.sample(", "self.policy.answer(")
    assert repeated_answers.of(make.process(sites=lines_of(text, advantage="advantages ="))) is None


def test_what_a_distribution_gives(make: Any) -> None:
    text = ROLLOUT.format(above="pass", below=BOTH, given="prompts")
    text = text.replace("self.policy.sample(prompts)", "Categorical(logits=policy(prompts)).sample()")
    assert repeated_answers.of(make.process(sites=lines_of(text, advantage="advantages ="))).place.line == 5
