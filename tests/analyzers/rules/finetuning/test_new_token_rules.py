"""new-tokens-untrained: added rows that never change, and those that nobody uses."""

from __future__ import annotations

from typing import Any

import pytest

RULE = "new-tokens-untrained"
ROW = {"parameter": "words.weight", "before": 50, "rows": 56, "trainable": False, "looked_up": True}


def looks(make: Any, used: float, unchanged: float, last: int = 100, **more: Any) -> Any:
    rows = [{**ROW, "step": step, "used": used, "unchanged": unchanged, **more} for step in (0, 10, last)]
    return make.process(more={"new_rows": rows})


def test_rows_that_stay_as_they_were(make: Any) -> None:
    for trainable in (False, True):
        status, _, finding = make.check(RULE, looks(make, 6.0, 6.0, trainable=trainable))
        assert (status, finding.severity, finding.confidence) == ("fired", "warning", "certain")
        assert ("LoraConfig" in finding.fix_code) is False, "no line of the script says that it uses PEFT"
        assert ("requires_grad_(True)" in finding.fix_code) == (not trainable)
        assert "adapters" not in finding.fix
        assert "meaningless" not in finding.summary, "they may be the mean of the others"


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("embedding.weight.register_hook(lambda grad: grad * keep)", True),
        ("embedding.weight.register_hook(lambda grad: grad.clamp(-1, 1))", False),
        ("embedding.weight.register_hook(masked)", False),
    ],
)
def test_the_hook_that_multiplies_the_gradient_by_a_mask(make: Any, source: str, named: bool) -> None:
    hook = {"site": 9, "role": "hook", "file": "a.py", "line": 76, "function": "protect", "source": source}
    rows = [{**ROW, "step": step, "used": 6.0, "unchanged": 6.0, "trainable": True} for step in (0, 10, 100)]
    finding = make.check(RULE, make.process(more={"new_rows": rows}, sites=[hook]))[2]
    assert finding.location.line == 76
    assert ("multiplies a gradient by `keep`" in finding.summary) is named
    assert (finding.fix_code == "keep[50:] = 1.0  # above line 76: new rows train") is named
    assert ("Make the optimizer after" in finding.fix) is not named


@pytest.mark.parametrize(
    ("above", "told"),
    [
        (
            ["    def hook(grad):", "        grad = grad.clone()", "        grad[:count] = 0", "        return grad"],
            True,
        ),
        (["        grad = grad.clone()", "        grad[:count].zero_()", "        return grad"], True),
        (["    def hook(grad):", "        grad[:count] *= 0.0", "        return grad"], True),
        (["    def other(grad):", "        grad[:count] = 0", "        return grad"], False),
        (["    def hook(grad):", "        grad[count:] = 0", "        return grad"], False),
        (["    def hook(grad):", "        grad[:count] = 1", "        return grad"], False),
        (["    old[:count] = 0"], False),
    ],
)
def test_the_hook_that_sets_the_first_rows_of_a_gradient_to_zero(make: Any, above: list[str], told: bool) -> None:
    lines = [*above, "    embedding.weight.register_hook(hook)"]
    hook = {"site": 9, "role": "hook", "file": "a.py", "line": 76, "function": "keep", "source": lines[-1].strip()}
    hook |= {"excerpt": "\n".join(lines), "excerpt_line": 77 - len(lines)}
    rows = [{**ROW, "step": step, "used": 6.0, "unchanged": 6.0, "trainable": True} for step in (0, 10, 100)]
    finding = make.check(RULE, make.process(more={"new_rows": rows}, sites=[hook]))[2]
    assert (finding.location.line == 75 - 1) is told
    assert (
        "line 74 sets a gradient to 0 in all rows below `count`. The new rows begin at 50" in finding.summary
    ) is told
    assert finding.fix_code.startswith("grad[:50] = 0  # in place of line 74") is told


@pytest.mark.parametrize(
    ("given", "hook", "turned"),
    [
        ("hold[old:] = 1.0", "grad * (1.0 - hold)", "hold[:old] = 1.0"),
        ("hold[:old] = 0", "grad * (1 - hold)", "hold[old:] = 0"),
        ("hold[:old] = 1", "grad * hold", "hold[old:] = 1"),
        ("hold[self.old:] = 0.0  # the new ones", "grad * hold", "hold[:self.old] = 0.0"),
        ("hold[:old] = 1.0", "grad * (1 - hold)", None),  # as it should be: something else holds them
        ("hold[old:] = 1.0", "grad * hold", None),
        ("hold[known] = 0.0", "grad * hold", None),
    ],
)
def test_the_mask_of_a_hook_that_takes_the_wrong_rows(make: Any, given: str, hook: str, turned: str | None) -> None:
    lines = ["def keep(weight, old):", f"    {given}", f"    weight.register_hook(lambda grad: {hook})"]
    site = {"site": 9, "role": "hook", "file": "a.py", "line": 42, "function": "keep", "source": lines[-1].strip()}
    site |= {"excerpt": "\n".join(lines), "excerpt_line": 40}
    rows = [{**ROW, "step": step, "used": 6.0, "unchanged": 6.0, "trainable": True} for step in (0, 10, 100)]
    finding = make.check(RULE, make.process(more={"new_rows": rows}, sites=[site]))[2]
    assert finding.location.line == (41 if turned else 42)
    assert (finding.diff.added[0].split("  #")[0].strip() if finding.diff else None) == turned
    assert ("the new rows are held, and the old ones train" in finding.summary) == bool(turned)
    assert ("multiplies a gradient by 1 - `hold`" in finding.summary) == ("1" in hook)
    assert (
        bool(turned)
        or finding.fix_code == f"hold[50:] = {0.0 if '1' in hook else 1.0}  # above line 42: new rows train"
    )


def test_the_rows_of_a_second_training_have_its_time(make: Any) -> None:
    first, second = make.steps(50), make.steps(200)
    steps = {name: [*first[name], *second[name]] for name in first}
    steps |= {"optimizer": [0] * 50 + [1] * 200, "time": [0.1 * (index + 1) for index in range(250)]}
    optimizers = [{"optimizer": index, "name": "AdamW"} for index in (0, 1)]
    rows = [{**ROW, "step": step, "used": 3.0, "unchanged": 3.0} for step in (51, 60, 200)]
    finding = make.check(RULE, make.process(steps, more={"new_rows": rows, "optimizers": optimizers}))[2]
    assert (finding.first_step, round(finding.first_second, 1)) == (2, 5.2)
    assert "Inputs use 3 of them, not counting padding, and all of these are bit-for-bit" in finding.summary


def test_the_end_of_a_long_name_stands_in_the_title(make: Any) -> None:
    name = "base_model.model.model.decoder.embed_tokens.weight"
    title = make.check(RULE, looks(make, 6.0, 6.0, parameter=name))[2].title
    assert "…decoder.embed_tokens.weight" in title
    assert len(title) <= 90


def test_rows_of_which_the_forward_takes_a_copy_or_to_which_it_adds(make: Any) -> None:
    assert make.check(RULE, looks(make, 6.0, 6.0, looked_up=False))[0] == "passed"
    assert make.check(RULE, looks(make, 6.0, 6.0, looked_up=None))[0] == "skipped", "a compiled model"


def test_rows_that_change_or_are_not_used(make: Any) -> None:
    assert make.check(RULE, looks(make, 6.0, 0.0))[0] == "passed"
    assert make.check(RULE, looks(make, 6.0, 2.0))[0] == "passed", "some came late"
    assert make.check(RULE, looks(make, 0.0, 0.0))[0] == "passed", "a size that divides by 64, a padding token"
    assert make.check(RULE, looks(make, 6.0, 6.0, last=12))[0] == "skipped"
    assert make.check(RULE, make.process())[0] == "skipped"


TUNED = """\
def tune(model):
    model.resize_token_embeddings(56)
    config = {config}
    return get_peft_model(model, config)"""


@pytest.mark.parametrize(
    ("config", "line", "example"),
    [
        (
            "LoraConfig(r=4, lora_alpha=8)",
            13,
            'config = LoraConfig(r=4, lora_alpha=8, modules_to_save=["wte", "lm_head"])',
        ),
        ('LoraConfig(r=4, modules_to_save=["score"])', 13, 'LoraConfig(r=4, modules_to_save=["wte", "score"])'),
        ("LoraConfig(r=4, modules_to_save=kept)", 13, 'LoraConfig(r=8, modules_to_save=["wte", "lm_head"])'),
        ("lora(**options)", 14, 'LoraConfig(r=8, modules_to_save=["wte", "lm_head"])'),
    ],
)
def test_the_line_that_says_what_adapters_train(make: Any, config: str, line: int, example: str) -> None:
    """Beside adapters no line of the script freezes the embedding."""
    site = {"site": 70, "role": "module", "file": "tune.py", "line": 14, "function": "tune", "excerpt_line": 11}
    site |= {"source": "return get_peft_model(model, config)", "excerpt": TUNED.format(config=config)}
    modules = [{"model": 0, "module": "", "kind": "PeftModelForCausalLM", "made_at": 70}]
    rows = [ROW | {"step": step, "used": 6.0, "unchanged": 6.0, "parameter": "base.h.wte.weight"} for step in (0, 99)]
    finding = make.check(RULE, make.process(sites=[site], more={"new_rows": rows, "modules": modules}))[2]
    assert (finding.location.file, finding.location.line) == ("tune.py", line)
    assert example in finding.fix_code
    assert "along with the adapters" in finding.fix
