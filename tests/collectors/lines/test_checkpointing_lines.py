"""Reentrant checkpointing of what needs no gradient: whether it matters, and where it is asked for."""

from __future__ import annotations

import functools
import linecache
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.hooks.training import activation_checkpoints  # noqa: E402
from tracelyze.collectors.internals.compiler import wrappers  # noqa: E402
from tracelyze.collectors.program.call_sites import Sites  # noqa: E402
from tracelyze.collectors.signals.gradients.frozen import checkpointed  # noqa: E402


class Block(nn.Module):
    def __init__(self, frozen: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2).requires_grad_(not frozen)

    def forward(self, hidden: Any, scale: float = 1.0) -> Any:
        return self.linear(hidden) * scale


def wrapped(block: Any) -> Any:
    def run(hidden: Any) -> Any:
        return block(hidden)

    return run


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_frozen_as_a_whole_is_left_out(frozen: bool) -> None:
    block = Block(frozen)
    for function in (block, block.forward, functools.partial(block.forward, scale=2.0), wrapped(block)):
        assert checkpointed.may_train(torch, function) != frozen
    assert checkpointed.may_train(torch, lambda hidden: hidden), "no module is known"
    holder = [wrapped(None)]
    holder.append(wrapped(holder))
    assert checkpointed.may_train(torch, holder[1])


ASKED = """\
class Settings:
    checkpointing = {"WORD": True}  # WORD=True saves memory


def run(call, *given):
    return call(*given)


def frozen(layer, hidden):
    return checkpoint(layer, hidden, WORD=False)
"""
TURNED_ON = """\
def run(call, *given):
    model.gradient_checkpointing_enable()
    return call(*given)
"""


WORD = "use_" + "reentrant"  # apart, as the text of this file is looked through as well


def noted(text: str, name: str) -> list[tuple[str, int, str]]:
    text, names = text.replace("WORD", WORD), dict[str, Any]()
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text.replace("    model.", "    # model."), name, "exec"), names)
    rows: list[dict[str, Any]] = []
    sites = Sites(rows.append)
    names["run"](lambda: checkpointed.note_text(sys._getframe(1), sites))
    return [(row["role"], row["line"], row["function"]) for row in rows if row["file"] == name]


def test_where_it_is_asked_for() -> None:
    assert noted(ASKED, "/asked.py") == [("reentrant", 2, "Settings")]
    assert noted(TURNED_ON, "/turned_on.py") == [("reentrant", 2, "run")]
    assert noted(ASKED + TURNED_ON.replace("run", "other"), "/both.py") == [("reentrant", 2, "Settings")]


class Asked:
    """Raises when it is asked whether it needs a gradient."""

    @property
    def requires_grad(self) -> bool:
        raise RuntimeError("not to be asked")


def test_what_is_told_in_vain_and_what_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function is called all the same, with what it was given."""
    kind = sys.modules[activation_checkpoints.HOME].CheckpointFunction
    monkeypatch.setattr(kind, "apply", staticmethod(lambda *given: len(given)))
    monkeypatch.setattr(torch, "Tensor", (torch.Tensor, Asked))
    told: list[Any] = []
    activation_checkpoints.install(torch, told.append)
    wrappers.pop()
    assert kind.apply("frozen", torch.zeros(2)) == 2
    assert kind.apply("given", torch.zeros(2, requires_grad=True), None) == 3
    assert kind.apply("asked", Asked(), None, None) == 4
    assert told == ["frozen"]
