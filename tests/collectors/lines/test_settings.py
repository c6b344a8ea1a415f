"""Lines at which a script gives a framework a setting by name."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

from tracelyze.analyzers.rules import RULES
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.lines.named import reward_calls
from tracelyze.collectors.program.lines.settings import named_arguments

SCRIPT = """\
def main(args):
    other = dict(
        rate=1.0, learning_rate=args.rate)
    trainer = Trainer(
        model,
        max_steps=30,
        learning_rate=args.learning_rate
        if args.learning_rate
        else 3e-4,
        # detect_anomaly=True would be slow
        fp16=args.fp16,
        per_device_train_batch_size=4,
    )
    learning_rate = args.learning_rate
    criterion = str(ignore_index=args.padding)
    print("learning_rate =", learning_rate, ("fp16", "packing"))
    tok = str(additional_special_tokens=TAGS)
"""


def test_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    linecache.checkcache()
    names: dict[str, object] = {}
    exec(compile(SCRIPT, str(path), "exec"), names)
    assert named_arguments.lines(names["main"].__code__) == [3, 7, 11, 12, 15, 17]  # type: ignore[attr-defined]


class Augmented:
    def __init__(self, images: object, augment: bool = True, *, jitter: bool = True, train: bool = True) -> None:
        pass


class Plain:
    def __init__(self, images: object, augment: bool = False, train: bool = True) -> None:
        pass


def test_datasets_that_augment_unless_they_are_told_otherwise() -> None:
    found: list[tuple[object, ...]] = []

    class Sites:
        def add(self, role: str, *place: object, **more: object) -> None:
            found.append((role, *more.values()))

    definitions.switches(Augmented(()), Sites())  # type: ignore[arg-type]
    definitions.switches(Plain(()), Sites())  # type: ignore[arg-type]
    definitions.switches([1, 2], Sites())  # type: ignore[arg-type]
    assert found == [("augmented", "augment", "Augmented", "1"), ("augmented", "jitter", "Augmented", "-1")]


REWARDING = """\
def alone(model):
    return GRPOTrainer(model=model, reward_funcs=correctness)
def several(model):
    return GRPOTrainer(
        model,
        reward_funcs=[short,
                      polite, "a/model"],
    )
def made(model):
    return GRPOTrainer(model, reward_funcs=partial(correctness, 3))
def none(model):
    return GRPOTrainer(model, args="reward_funcs")
"""


def test_functions_that_give_rewards(tmp_path: Path) -> None:
    path = tmp_path / "tune.py"
    path.write_text(REWARDING)
    linecache.checkcache()
    names: dict[str, object] = {}
    exec(compile(REWARDING, str(path), "exec"), names)
    found = {name: named_arguments.reward_functions(names[name].__code__)  # type: ignore[attr-defined]
             for name in ("alone", "several", "made", "none")}  # fmt: skip
    assert found == {"alone": {"correctness"}, "several": {"short", "polite"}, "made": set(), "none": set()}


@pytest.mark.parametrize(
    ("lines", "names"),
    [
        (["answers = sample(policy)", "rewards = exact_match(answers, prompts)"], {"exact_match"}),
        (["rewards = torch.tensor([exact_match(one) for one in answers])"], {"exact_match"}),
        (["rewards = torch.tensor(", "    [exact_match(one)", "     for one in answers])"], {"exact_match"}),
        (["rewards = []", "for one in answers:", "    rewards.append(exact_match(one))"], {"exact_match"}),
        (["rewards = exact_match(answers)", "rewards = scale(rewards)"], {"exact_match"}),
        (["state, reward, done = environment.step(action)", "scores = exact_match(answers)"], set()),
        (["if not answers:", "    return evaluate(policy)", "rewards = exact_match(answers)"], {"exact_match"}),
        (["mean_reward = evaluate(policy)", "reward_model = build()"], set()),
        (["rewards = exact_match(answers)", "advantages = normalise(rewards)", "evaluate(policy)"], {"exact_match"}),
    ],
)
def test_functions_that_rewards_are_assigned_of(lines: list[str], names: set[str]) -> None:
    names_of_script = {"sample", "exact_match", "scale", "evaluate", "build", "normalise", "step", "append"}
    text = "def f(policy, prompts, answers):\n" + "".join(f"    {line}\n" for line in lines)
    held: dict[str, object] = {}
    exec(compile(text, "tune.py", "exec"), held)
    assert reward_calls.functions(held["f"].__code__) & names_of_script == names  # type: ignore[attr-defined]


def test_what_rules_ask_for_is_looked_for() -> None:
    asked = {name for rule in RULES for name in rule.settings}
    assert asked == named_arguments.NAMES


def test_a_call_that_is_given_more_arguments_by_name_than_the_stack_is_to_hold(tmp_path: Path) -> None:
    """Python puts them into a dictionary one by one, from 16 on."""
    others = "".join(f"        option_{number}={number},\n" for number in range(20))
    script = tmp_path / "many.py"
    text = (
        f"def main(Config):\n    args = Config(\n{others}        max_grad_norm=5.0,\n    )\n    return Config(lr=1)\n"
    )
    script.write_text(text, encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(text, str(script), "exec"), names)
    assert named_arguments.lines(names["main"].__code__) == [23]  # type: ignore[attr-defined]
