"""target-in-input: the line that cuts input and targets out of one tensor in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.computed.targets import same_slice
from tracelyze.diagnosis import Location


def judged(make: Any, labels: str, given: str, call: str = "logits = model(src, given)") -> Any:
    text = f"    labels = {labels}\n    given = {given}\n    {call}\n    return measure(logits, labels)"
    loss = {"site": 1, "role": "loss", "line": 13, "source": "return measure(logits, labels)"}
    called = {"site": 2, "role": "training-call", "line": 12, "source": call}
    place = {"file": "a.py", "function": "step", "excerpt": text, "excerpt_line": 10}
    process = make.process(sites=[loss | place, called | place])
    return same_slice.remedy(process, Location("a.py", 13, "step", "return measure(logits, labels)"))


@pytest.mark.parametrize(
    ("cut", "line", "edited"),
    [
        ("tgt[:, 1:]", 11, "    given = tgt[:, :-1]"),  # the decoder is to be given the tokens before
        ("batch.ids[:, :-1]", 10, "    labels = batch.ids[:, 1:]"),
        ("tgt[1:]", 11, "    given = tgt[:-1]"),  # positions come first
        ("tgt[:, 1:].contiguous()", 11, "    given = tgt[:, :-1].contiguous()"),
    ],
)
def test_both_are_cut_alike(make: Any, cut: str, line: int, edited: str) -> None:
    found = judged(make, cut, cut)
    assert (found.place.line, found.diff.added) == (line, [edited])
    assert "lines 10 and 11 cut both" in found.why


@pytest.mark.parametrize(
    ("labels", "given", "call"),
    [
        ("tgt[:, 1:]", "tgt[:, :-1]", "logits = model(src, given)"),
        ("tgt[:, 1:]", "src[:, 1:]", "logits = model(src, given)"),
        ("tgt[:, 1:]", "tgt[:, 1:]", "logits = model(src, tgt)"),
        ("tgt[:, 1:]", "tgt", "logits = model(src, given)"),
    ],
)
def test_what_is_not_cut_alike_or_not_given(make: Any, labels: str, given: str, call: str) -> None:
    assert judged(make, labels, given, call) is None
