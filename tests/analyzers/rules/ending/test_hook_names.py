"""Methods of a callback that no framework calls by their names."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.evaluation.ema_not_updated import hook_names
from tracelyze.diagnosis import Location

OF_LIGHTNING = "self, trainer, pl_module, outputs, batch, batch_idx"
OF_TRANSFORMERS = "self, args, state, control, model=None, **kwargs"


def found(make: Any, name: str, arguments: str, *more: str) -> hook_names.Misspelt | None:
    text = f"    @torch.no_grad()\n    def {name}({arguments}):\n        self.average.lerp_(weight, 0.01)"
    site = {
        "role": "average",
        "file": "a.py",
        "line": 32,
        "function": name,
        "source": "self.average.lerp_(weight, 0.01)",
    }
    sites = [{"site": 5, **site, "excerpt": text, "excerpt_line": 30}]
    for i, one in enumerate(more):
        line = {"line": 70 + 9 * i, "excerpt": one, "excerpt_line": 70 + 9 * i}
        sites.append({"site": 6 + i, "role": "step", "file": "a.py", "function": "main", "source": one, **line})
    return hook_names.misspelt(make.process(sites=sites), Location("a.py", 32, name, site["source"]))


@pytest.mark.parametrize(
    ("name", "arguments", "hook"),
    [
        ("on_train_batch_ended", OF_LIGHTNING, "on_train_batch_end"),
        ("on_training_epoch_end", OF_LIGHTNING, "on_train_epoch_end"),
        ("on_step", "self, trainer: Trainer, pl_module: Module", "on_train_batch_end"),
        ("on_step_ended", OF_TRANSFORMERS, "on_step_end"),
        ("on_batch_end", OF_TRANSFORMERS, "on_step_end"),
    ],
)
def test_a_method_that_no_hook_is_called_like(make: Any, name: str, arguments: str, hook: str) -> None:
    misspelt = found(make, name, arguments)
    assert misspelt is not None
    assert (misspelt.place.line, misspelt.diff.added) == (31, [f"    def {hook}({arguments}):"])
    assert f"Name it {hook}: " in misspelt.fix
    assert f"has no hook {name}, so that line 32 runs only if the script calls it." in misspelt.fix


@pytest.mark.parametrize(
    ("name", "arguments", "more"),
    [
        ("on_train_batch_end", OF_LIGHTNING, ()),
        ("on_step_end", OF_TRANSFORMERS, ()),
        ("on_train_batch_ended", "self, model", ()),  # a class of the script's own
        ("update", OF_LIGHTNING, ()),
        ("on_step", OF_LIGHTNING, ("self.on_step(trainer, module)",)),  # the script calls it
    ],
)
def test_a_method_that_is_called(make: Any, name: str, arguments: str, more: tuple[str, ...]) -> None:
    assert found(make, name, arguments, *more) is None
