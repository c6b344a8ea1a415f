"""A loop that fills and sends one buffer in each pass, and loops in which that does no harm."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.data.corrupted_copy import refilled_sends

LOOP = """        for part in x.split(4):
            h = self.model(part)
            self.out.copy_(h.detach())
            works.append(dist.isend(self.out, dst=1))
        for work in works:
            work.wait()"""
SENDS = "works.append(dist.isend(self.out, dst=1))"


def process_of(make: Any, text: str, ranks: int = 2, ran: str = "forward") -> Any:
    lines = text.split("\n")
    at = next(number for number, line in enumerate(lines) if "isend" in line)
    place = {"file": "train.py", "function": "step", "excerpt": text, "excerpt_line": 20}
    sends = place | {"site": 1, "role": "sends", "line": 20 + at, "source": lines[at].strip()}
    runs = place | {"site": 2, "role": ran, "line": 21, "source": lines[1].strip()}
    return make.process(sites=[sends, runs], facts={"world_size": ranks})


def test_a_buffer_that_the_next_pass_fills_before_it_was_sent(make: Any) -> None:
    process = process_of(make, LOOP)
    found = refilled_sends.find(process)
    assert found is not None
    assert (found.buffer, found.fills, found.place.line, found.loop) == ("self.out", 22, 23, 20)
    finding = refilled_sends.finding(process, "corrupted-copy", found)
    assert finding.diff.added == ["            works.append(dist.isend(self.out.clone(), dst=1))"]
    assert "line 22 fills `self.out` and line 23 begins to send it" in finding.summary


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("self.out.copy_(h.detach())", "self.out[:] = h.detach()", True),
        ("self.out.copy_(h.detach())", "torch.relu(h.detach(), out=self.out)", True),
        (SENDS, "works.append(dist.isend(self.out, 1)); works[-1].wait()", False),
        (SENDS, f"{SENDS}\n            drain(works)", False),
        ("self.out.copy_(h.detach())", "self.out = h.detach()", False),  # memory of its own
        ("self.out.copy_(h.detach())", "self.other.copy_(h.detach())", False),
        ("self.out, dst", "self.out.clone(), dst", False),
        ("self.out, dst", "self.out[part], dst", False),
        ("            self.out.copy_(h.detach())\n", "", False),
        ("for part in x.split(4):", "if part is not None:", False),
        ("\n        for work in works:\n            work.wait()", "", False),  # where the loop ends is not known
        ("self.out.copy_(h.detach())", "if new:\n                self.out.copy_(h)", False),
    ],
)
def test_what_the_loop_says(make: Any, old: str, new: str, found: bool) -> None:
    assert old in LOOP
    assert (refilled_sends.find(process_of(make, LOOP.replace(old, new, 1))) is not None) == found


def test_one_rank_or_a_function_that_was_not_seen_to_run(make: Any) -> None:
    assert refilled_sends.find(process_of(make, LOOP, ranks=1)) is None
    assert refilled_sends.find(process_of(make, LOOP, ran="cut")) is None
