"""target-in-input: the line that cuts input and targets out of one tensor in the same way."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.objective.target_in_input import same_slice
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


def handed_out(make: Any, *lines: str) -> Any:
    place = {"file": "a.py", "function": "get_batch", "excerpt": "\n".join(lines), "excerpt_line": 20}
    return same_slice.handed_out(make.process(sites=[{"site": 1, "role": "draw", "line": 20, "source": "", **place}]))


CUT = "torch.stack([data[i:i + block] for i in starts])"


@pytest.mark.parametrize(
    ("lines", "line", "code"),
    [
        ((f"    a = {CUT}", f"    b = {CUT}", "    return a, b"), 21, "block"),
        ((f"    b = {CUT}", f"    a = {CUT}", "", "    yield (a, b)"), 20, "block"),
        (("    a = ids[s:s + n]", "    b = ids[s:s + n]", "    return (a, b), n"), 21, "b = ids[s + 1:s + n + 1]"),
        (("    a = ids[s:end]", "    b = ids[s:end]", "    return a, b"), 21, "b = ids[s + 1:end + 1]"),
    ],
)
def test_a_pair_that_is_made_by_one_expression(make: Any, lines: tuple[str, ...], line: int, code: str) -> None:
    found = handed_out(make, *lines)
    assert (found.place.line, found.diff) == (line, None)
    assert "i + 1:i + block + 1" in found.code if "block" in code else found.code == code


@pytest.mark.parametrize(
    "lines",
    [
        (f"    a = {CUT}", "    b = torch.stack([data[i + 1:i + 1 + block] for i in starts])", "    return a, b"),
        (f"    a = {CUT}", f"    b = {CUT}", "    return a"),
        ("    a = ids[:]", "    b = ids[:]", "    return a, b"),
        (f"    a = {CUT}", f"    b = {CUT}", "    return a, b", f"    c = {CUT}", f"    d = {CUT}", "    return c, d"),
    ],
)
def test_pairs_that_say_nothing_of_targets(make: Any, lines: tuple[str, ...]) -> None:
    assert handed_out(make, *lines) is None


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (["labels = input_ids.clone()"], "line 45 makes labels a copy of input_ids, which nothing shifts after that."),
        (["labels = batch.ids.copy()  # as it is"], "line 45 makes labels a copy of batch.ids, which"),
        (["labels = input_ids.roll(-1)"], same_slice.UNKNOWN),
        (["labels = input_ids.clone()", "labels = held.clone()"], same_slice.UNKNOWN),
        ([], same_slice.UNKNOWN),
    ],
)
def test_labels_that_are_a_copy_of_the_ids(make: Any, sources: list[str], said: str) -> None:
    sites = [
        {"site": at, "role": "labels", "file": "a.py", "line": 45 + 30 * at, "function": "collate", "source": source}
        for at, source in enumerate(sources)
    ]
    assert same_slice.not_shifted(make.process(sites=sites)).startswith(said)
