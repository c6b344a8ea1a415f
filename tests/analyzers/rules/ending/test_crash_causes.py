"""Lines of the script that brought an exception about, and look-alikes in which none is named."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.diagnosis import Exit

GAN = """\
def main():
    for step in range(100):
        fake = G(noise())
        real_score = D(real())
        score = D(fake)
        loss_d = -(real_score.log() + (1 - score).log()).mean()
        loss_g = (1 - score).log().mean()
        loss_d.backward(retain_graph=True)
        opt_d.step()
        loss_g.backward()"""
SAID = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.FloatTensor [{shape}]]{of} is at version 152; expected version 151 instead."
)


def process(
    make: Any,
    text: str,
    said: str,
    rows: list[tuple[str, int]],
    more: list[dict[str, Any]] = [],  # noqa: B006
    before: str = "",
) -> Any:
    lines = text.split("\n")
    place = {"file": "a.py", "function": "main", "excerpt_line": 1, "excerpt": text}
    sites = [place | {"site": at, "role": role, "line": line, "source": lines[line - 1].strip()}
             for at, (role, line) in enumerate(rows, 10)]  # fmt: skip
    last = rows[-1][1]
    ended = {"kind": "exception", "name": "RuntimeError", "step": 151, "time": 1.0, "file": "a.py", "line": last}
    ended |= {"text": said, "source": lines[last - 1].strip()}
    events = [{"kind": before, "step": 0}, ended] if before else [ended]
    optimizers = [{"optimizer": 0, "name": "Adam", "device": "cpu", "dtype": "float32", "parameters": 4, "site": 10}]
    models = [
        {"model": 0, "name": "Sequential", "called_as": "D"},
        {"model": 1, "name": "Sequential", "called_as": "G"},
    ]
    weights = [{"step": 1, "optimizer": 0, "parameter": "2.weight", "elements": 128, "dimensions": 2}]
    return make.process(
        sites=[*sites, *more], events=events, end=Exit("exception", 1), optimizers=optimizers, models=models,
        more={"parameters": weights, "links": [{"optimizer": 0, "model": 0}]},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "shape", "of", "known"),
    [
        (GAN, "128, 1", ", which is output 0 of AsStrided,", True),
        (GAN, "1, 128", ",", True),
        (GAN, "64, 128", ", which is output 0 of ReluBackward0,", False),  # no weight, but an activation
        (GAN, "64, 32", ",", False),  # of another size than a weight
        (
            GAN.replace("score).log().mean()\n        loss_d", "D(fake)).log().mean()\n        loss_d"),
            "128, 1",
            ",",
            True,
        ),
        (GAN.replace("score = D(fake)\n", "score = E(fake)\n"), "128, 1", ",", False),  # through another model
    ],
)
def test_a_step_between_a_loss_and_its_backward(make: Any, text: str, shape: str, of: str, known: bool) -> None:
    said = SAID.format(shape=shape, of=of)
    finding = make.check("crash", process(make, text, said, [("step", 9), ("exception", 10)]))[2]
    assert (finding.location.line, "Here line 9 changes the weights of D" in finding.summary) == (
        (9, True) if known else (10, False)
    )
    assert ("Compute loss_g again below line 9" in finding.fix) == known
    assert ("common in GANs" in finding.summary) != known, "no usual causes beside the one that is known"
    assert "needed for gradient" in finding.title
    assert "needed for gradient" not in finding.summary, "a long message that is explained stands in the evidence"
    again = "score = D(fake)\nloss_g = (1 - score).log().mean()  # again, below line 9"
    inside = "loss_g = (1 - D(fake)).log().mean()  # again, below line 9"
    assert (finding.fix_code in (again, inside)) == known


def test_a_loss_that_is_computed_below_the_step(make: Any) -> None:
    lines = GAN.split("\n")
    moved = "\n".join([*lines[:6], *lines[7:9], lines[4], lines[6], lines[9]])
    said = SAID.format(shape="128, 1", of=",")
    finding = make.check("crash", process(make, moved, said, [("step", 8), ("exception", 11)]))[2]
    assert finding.location.line == 11, "the weights are those of the forward: something else was changed"


LAYERS = """\
def main():
    for layer in self.layers:
        hidden = torch.utils.checkpoint.checkpoint(layer, hidden, {how})
    loss = head(hidden).mean()
    loss.backward()"""
NO_GRAPH = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
FROZEN = [
    {"site": 5, "role": "freeze", "file": "a.py", "line": 90, "function": "adapt", "source": "p.requires_grad = 0"}
]


@pytest.mark.parametrize(
    ("how", "frozen", "line"),
    [
        ("use_reentrant=True", FROZEN, 3),
        ("use_reentrant=False", FROZEN, 5),
        ("use_reentrant=True", [], 5),  # nothing is frozen
    ],
)
def test_reentrant_checkpointing_behind_frozen_layers(make: Any, how: str, frozen: list[Any], line: int) -> None:
    rows = [("step", 5), ("checkpointing", 3), ("exception", 5)]
    finding = make.check("crash", process(make, LAYERS.format(how=how), NO_GRAPH, rows, frozen))[2]
    assert finding.location.line == line
    assert ("line 3 checkpoints with use_reentrant=True" in finding.summary) == (line == 3)
    assert "argmax" in finding.summary, "the text alone does not rule out the usual causes"
    assert "or reentrant checkpointing" in finding.summary
    edited = "hidden = torch.utils.checkpoint.checkpoint(layer, hidden, use_reentrant=False)"
    assert (finding.fix_code == edited) == (line == 3)
    assert line == 3 or "# right above the backward" in finding.fix_code, "no line that the script has already"


def test_checkpointing_that_was_seen_to_give_no_gradient(make: Any) -> None:
    rows = [("step", 5), ("checkpointed", 3), ("exception", 5)]
    text = LAYERS.format(how="use_reentrant=True")
    finding = make.check("crash", process(make, text, NO_GRAPH, rows, before="checkpointed-in-vain"))[2]
    assert finding.location.line == 3
    assert "argmax" not in finding.summary, "no usual causes beside the one that is known"
