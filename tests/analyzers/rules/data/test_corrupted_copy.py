"""corrupted-copy: inputs that change while autograd needs them, and buffers that may be filled again."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.data.corrupted_copy import early_reads

RULE = "corrupted-copy"


def seen(make: Any, looks: int, changed: int, saved: int) -> Any:
    """A run in which the last steps that were looked at are those in which an input changed."""
    place = {"module": "Net", "argument": "0"}
    rows = [
        place | {"step": looks - changed + n, "shape": "8x3", "dtype": "float32", "share": 1.0}
        | {"looks": looks - changed + n + 1, "changed": n + 1, "saved": min(n + 1, saved)}
        for n in range(changed)
    ]  # fmt: skip
    rows.append(place | {"step": 400, "looks": looks, "changed": changed, "saved": saved})
    rows.append({"module": "Loss", "argument": "1", "step": 400, "looks": looks, "changed": 0, "saved": 0})
    return make.process(more={"inputs_in_use": rows})


def test_inputs_that_change_while_autograd_needs_them(make: Any) -> None:
    status, _, finding = make.check(RULE, seen(make, 40, 40, 30))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert "in 40 of 40 steps" in finding.title
    assert finding.first_step == 1
    _, _, finding = make.check(RULE, seen(make, 40, 2, 2))
    assert (finding.severity, finding.confidence) == ("critical", "likely")
    _, _, finding = make.check(RULE, seen(make, 400, 3, 3))
    assert (finding.severity, finding.first_step) == ("warning", 1)
    _, _, finding = make.check(RULE, seen(make, 40, 20, 20))
    assert finding.first_step == 21, "twenty steps before were sound"


def test_buffers_that_may_be_filled_again(make: Any) -> None:
    assert make.check(RULE, seen(make, 40, 0, 0))[0] == "passed"
    assert make.check(RULE, seen(make, 40, 40, 0))[0] == "passed", "the model made numbers of its own of them"
    assert make.check(RULE, seen(make, 40, 1, 1))[0] == "passed", "once"


def test_without_inputs(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"


IRECV = "work = dist.irecv(box, src=0)"
REDUCE = "handle = dist.all_reduce(p.grad, async_op=True)"


def receives(make: Any, lines: list[str], role: str = "sampled", ranks: int = 2) -> Any:
    """A function of a job of ranks, in which the training thread was seen at the last line."""
    place = {"file": "a.py", "function": "receive", "excerpt_line": 1, "excerpt": "\n".join(f"    {x}" for x in lines)}
    sites = [
        place | {"site": 60, "role": "under-way", "line": 1, "source": lines[0]},
        place | {"site": 61, "role": role, "line": len(lines), "source": lines[-1]},
    ]
    return make.process(sites=sites, facts={"world_size": ranks})


@pytest.mark.parametrize(
    ("lines", "reads"),
    [
        ([IRECV, "h = box.clone()", "work.wait()"], 2),
        ([IRECV, "view = box.view(-1)", "# both", "total = total + box", "work.wait()"], 4),
        ([IRECV, "h = torch.stack([a, b])", "h.copy_(box)", "work.wait()"], 3),
        ([REDUCE, "p.grad /= world", "handle.wait()"], 2),
        ([IRECV, "work.wait()", "h = box.clone()"], 0),
        ([IRECV, "works.append(work)", "h = box.clone()", "work.wait()"], 0),  # who gets it may wait
        ([IRECV, "other.wait()", "h = box.clone()", "work.wait()"], 0),
        ([IRECV, "h = box.view(2, -1)", "boxes.append(box)", "n = box.numel()", "work.wait()"], 0),  # needs no values
        ([IRECV, "box = spare", "h = box.clone()", "work.wait()"], 0),  # another buffer
        ([IRECV, "if ready:", "    h = box.clone()", "work.wait()"], 0),
        ([IRECV, "h = box.clone()"], 0),
        ([REDUCE.replace(", async_op=True", ""), "p.grad /= world", "handle.wait()"], 0),
    ],
)
def test_buffers_that_are_read_before_the_wait(make: Any, lines: list[str], reads: int) -> None:
    found = early_reads.find(receives(make, lines))
    assert (found.reads.line if found else 0) == reads
    status, _, finding = make.check(RULE, receives(make, lines))
    assert (status == "fired") == bool(reads)
    if reads:
        assert finding.location.line == reads
        assert [line.strip() for line in finding.diff.added] == [lines[-1], *lines[reads - 1 : -1]]
    assert early_reads.find(receives(make, lines, "cut")) is None, "whether it ran is not known"
    assert early_reads.find(receives(make, lines, ranks=1)) is None


INLET = """
class Inlet(nn.Module):
    def forward(self):
        work = dist.irecv(self.box, src=0)
        h = self.box.clone()
        work.wait()
        return h

class Encoder(nn.Module):
    def forward(self, x):
        return self.net(x)
"""


@pytest.mark.parametrize(("seen", "status"), [("return h", "fired"), ("return self.net(x)", "skipped")])
def test_a_rank_that_runs_another_forward_reads_nothing_early(make: Any, seen: str, status: str) -> None:
    """The script is the same on all ranks: the one that sends has the method, and never calls it."""
    lines = INLET.strip().split("\n")
    place = {"file": "a.py", "function": "forward", "excerpt_line": 1, "excerpt": "\n".join(lines)}
    places = [next(at for at, line in enumerate(lines, 1) if words in line) for words in ("irecv", seen)]
    sites = [
        place | {"site": 60 + at, "role": role, "line": line, "source": lines[line - 1].strip()}
        for at, (role, line) in enumerate(zip(("under-way", "sampled"), places, strict=True))
    ]
    assert make.check(RULE, make.process(sites=sites, facts={"world_size": 2}))[0] == status
