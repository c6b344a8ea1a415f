"""Trainings that end once they have made as many batches as they were to make updates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

TEXT = """\
        for x, y in loader:
            (criterion(model(x), y) / args.accum).backward()
            step += 1
            if step % args.accum == 0:
                optimizer.step()
                optimizer.zero_grad()
            if step >= total_updates:
                finished = True
                break
"""
HERE = {"file": "train.py", "function": "train", "excerpt": TEXT, "excerpt_line": 20}


def ended(
    make: Any, made: int = 120, each: int = 4, planned: int = 24, length: int = 80, text: str = TEXT, **more: Any
) -> tuple[str, str, Any]:
    """A run of `made` updates of `each` batches, whose loop over epochs is written for `planned`."""
    sites = [
        {"site": 1, "role": "backward", "line": 21, "source": text.split("\n")[1].strip(), **HERE, "excerpt": text},
        {"site": 2, "role": "step", "line": 24, "source": "optimizer.step()", **HERE, "excerpt": text},
        {"site": 3, "role": "epochs", "file": "train.py", "line": 19, "source": "for epoch in range(args.epochs):"},
        {"site": 4, "role": "loader", "line": 20, "source": "for x, y in loader:", **HERE, "excerpt": text},
        *more.pop("sites", []),
    ]
    steps = make.steps(made) | {"backwards": [each] * made, "loader": [0] * made, "loader_batches": [each] * made}
    steps |= {"loader_first": [float(at * each % length == 0) for at in range(made)]}
    process = make.process(
        steps,
        evals=more.pop("evals", {}),
        optimizers=[{"optimizer": 0, "name": "AdamW", "site": 2, "backward_site": 1}],
        loaders=[{"loader": 0, "iterable": False, "length": length, "site": 4, "batch_size": 16}],
        events=[{"kind": "epochs-planned", "value": float(planned), "step": 0, "time": 0.0}],
        sites=sites,
    )
    answer: tuple[str, str, Any] = make.check("stops-short", process)
    return answer


def test_a_number_of_batches_that_is_compared_with_one_of_updates(make: Any) -> None:
    status, _, finding = ended(make)  # 24 epochs of 80 batches are 480 updates
    assert status == "fired"
    assert finding.title == "The training ended after 1/4 of its 24 epochs: it counts batches as updates"
    assert (
        "which make 480 updates of 4 batches each. Line 26 left it after as many batches, that is 120"
        in finding.summary
    )
    assert (finding.location.line, finding.diff.line) == (26, 26)
    assert finding.diff.added == ["            if step // args.accum >= total_updates:"]


def test_a_condition_that_stands_there_twice_is_not_edited_once(make: Any) -> None:
    outer = "        if step >= total_updates:\n            break\n"
    _, _, finding = ended(make, text=TEXT.replace("\n  ", "\n    ").replace("  for", "      for") + outer)
    assert (finding.location.line, finding.diff) == (26, None)
    assert finding.fix_code == "if step // args.accum >= total_updates:\n    break"


def test_batches_left_over_in_each_epoch(make: Any) -> None:
    assert ended(make, made=126, length=86, planned=24)[0] == "fired", "24 times 21 updates"
    assert ended(make, made=129, length=86, planned=24)[0] == "fired", "24 times 86 batches, over 4"
    assert ended(make, made=132, length=86, planned=24)[0] == "fired", "24 times 22 updates"
    assert ended(make, made=124, length=86, planned=24)[0] != "fired"


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("if step >= total_updates:", "if loss < target:"),  # no count
        TEXT.replace("break", "validate()"),  # it leaves nothing
        TEXT.replace("if step >= total_updates:", "if step >= 480:"),  # a limit of its own
    ],
)
def test_a_loop_that_no_count_leaves(make: Any, text: str) -> None:
    assert ended(make, text=text)[0] != "fired"


def test_what_may_end_a_training_as_well(make: Any) -> None:
    assert ended(make, made=100)[0] != "fired", "another number"
    assert ended(make, each=1)[0] != "fired", "an update for each batch"
    assert ended(make, made=480)[0] != "fired", "all of it"
    waits = {"site": 9, "role": "waits", "file": "train.py", "line": 40, "source": "waited += 1"}
    reset = {"site": 10, "role": "waits-reset", "file": "train.py", "line": 38, "source": "waited = 0"}
    assert ended(make, sites=[waits, reset])[0] != "fired", "a patience"
    worse = make.evals(6, 20) | {"loss": [1.0, 0.8, 0.6, 0.5, 0.52, 0.55], "loader": [1.0] * 6}
    zero = "                optimizer.zero_grad()\n"
    counted = TEXT.replace("            step += 1\n", "").replace(zero, zero + "                step += 1\n")
    assert ended(make, evals=worse, text=counted)[0] != "fired", "a validation that became worse"
    assert ended(make, evals=worse)[0] == "fired", "each batch counts"
    better = worse | {"loss": np.linspace(1.0, 0.5, 6).tolist()}
    assert ended(make, evals=better)[0] == "fired"
