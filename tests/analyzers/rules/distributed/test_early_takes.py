"""Many buffers that are read before what fills them is waited for, in a function or by methods of an object."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from tracelyze.analyzers.rules.data.corrupted_copy import early_takes

RULE = "corrupted-copy"
POST = """
def train(stage, labels):
    reqs = [dist.irecv(b, src=0, tag=i) for i, b in enumerate(bufs)]
"""
USE = """
    for i, y in enumerate(labels):
        h = bufs[i].clone().requires_grad_()
        loss(stage(h), y).backward()
"""
WAIT = """
    for r in reqs:
        r.wait()
"""
BOX = '''
class Box:
    def post(self):
        """All at once."""
        self.reqs = [dist.irecv(b, src=0) for b in self.bufs]

    def take(self, i):
        return self.bufs[i].clone()

    def drain(self):
        for r in self.reqs:
            r.wait()
        self.reqs = []

def train(box, labels):
    box.post()
    for i, y in enumerate(labels):
        h = box.take(i)
        loss(stage(h), y).backward()
    box.drain()
'''


def job(make: Any, text: str, role: str = "sampled", ranks: int = 2) -> Any:
    """A script of which all is recorded, with the training seen in `train`."""
    lines = [*textwrap.dedent(text).strip().split("\n"), "", "after = 1"]
    place = {"file": "a.py", "excerpt_line": 1, "excerpt": "\n".join(lines)}

    def at(number: int, role: str, words: str, function: str = "train") -> dict[str, Any]:
        line = next(at for at, line in enumerate(lines, 1) if words in line)
        more = {"role": role, "function": function, "source": lines[line - 1].strip()}
        return place | more | {"site": number, "line": line}

    begins = "async_op" if "async_op" in text else "irecv"
    sites = [at(60, "under-way", begins, "any"), at(61, role, "def train")]
    sites += [at(62, "training-call", "stage(")] if role == "sampled" and "stage(" in text else []
    return make.process(sites=sites, facts={"world_size": ranks})


def line_of(text: str, words: str) -> int:
    lines = textwrap.dedent(text).strip().split("\n")
    return next(at for at, line in enumerate(lines, 1) if words in line)


APPENDED = """
def train(stage, labels):
    reqs, bufs = [], []
    for i in range(4):
        b = torch.empty(8)
        bufs.append(b)
        reqs.append(dist.irecv(b, src=0, tag=i))
"""
AVERAGED = """
def train(model, x):
    loss(stage(x)).backward()
    handles = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for p in model.parameters():
        p.grad /= world
    for h in handles:
        h.wait()
"""


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        (POST + USE + WAIT, "h = bufs[i].clone()"),
        (APPENDED + USE + WAIT, "h = bufs[i].clone()"),
        (POST + USE.replace("].clone()", "].detach().clone()") + WAIT, "h = bufs[i].detach().clone()"),
        (POST.replace("bufs)]", "bufs)]\n    for s in sends: s.wait()") + USE + WAIT, ""),  # what else is waited for?
        (POST + USE.replace("bufs[i].clone().requires_grad_()", "bufs[i]").replace("stage(h)", "stage(bufs[i])")
         + WAIT, "stage(bufs[i])"),
        (POST + USE + "\n    [r.wait() for r in reqs]\n", "h = bufs[i].clone()"),
        (POST + USE.replace("i, y in enumerate(labels)", "b, y in zip(bufs, labels)").replace("bufs[i]", "b") + WAIT,
         "h = b.clone()"),
        (AVERAGED, "p.grad /= world"),
        (BOX, "return self.bufs[i].clone()"),
        (BOX.replace(".clone()", ""), "return self.bufs[i]"),  # the model is called with it
        (BOX.replace("for r in self.reqs:\n            r.wait()", "[r.wait() for r in self.reqs]"), "return self.bufs"),
    ],
)  # fmt: skip
def test_buffers_that_are_read_before_the_wait(make: Any, text: str, reads: str) -> None:
    found = early_takes.find(job(make, text))
    assert (found.reads if found else 0) == (line_of(text, reads) if reads else 0)
    status, _, finding = make.check(RULE, job(make, text))
    assert (status == "fired") == bool(reads)
    if reads:
        assert finding.location.line == line_of(text, reads)
        assert early_takes.find(job(make, text, "cut")) is None, "whether it ran is not known"
        assert early_takes.find(job(make, text, ranks=1)) is None


LANDED = BOX.replace("return self", "self.reqs[i].wait()\n        return self")
TWO_LISTS = BOX.replace(
    "def drain", "def swap(self):\n        self.bufs, self.spare = self.spare, self.bufs\n\n    def drain"
)


@pytest.mark.parametrize(
    "text",
    [
        POST + WAIT + USE,
        POST + USE.replace("h = bufs", "reqs[i].wait()\n        h = bufs") + WAIT,
        POST + USE.replace("bufs[i]", "spare[i]") + WAIT,  # other buffers
        POST + USE,  # waited for elsewhere, or never
        POST.replace("for i, b in enumerate(bufs)", "for i, b in enumerate(bufs) if i % 2") + USE + WAIT,
        POST + USE.replace("h =", "if late:\n            h =")
        .replace("stage(h)", "stage(y)") + WAIT,
        POST + "\n    give(reqs)" + USE + WAIT,  # who gets the requests may wait
        AVERAGED.replace("    for p in model.parameters():\n        p.grad /= world\n", "") + "    p.grad /= world\n",
        LANDED,
        TWO_LISTS,
        BOX.replace("return self", "self.ready(i)\n        return self"),
        BOX.replace("    box.post()\n", "").replace("box.drain()", "box.drain()\n    box.post()"),
        BOX.replace("box.post()", "box.post()\n    box.drain()"),
        BOX.replace("box.post()", "box.post()\n    start(box)"),
        BOX.replace("box.post()", "box.post()\n    dist.barrier()"),
        BOX.replace(".clone()", "").replace("loss(stage(h), y).backward()", "held.append(h)") + "    stage(held)\n",
        BOX.replace("self.bufs]", "self.bufs]\n        [r.wait() for r in self.reqs]"),
    ],
)  # fmt: skip
def test_buffers_that_are_full_when_they_are_read(make: Any, text: str) -> None:
    assert early_takes.find(job(make, text)) is None


def test_functions_of_which_the_end_is_not_known(make: Any) -> None:
    """A method that is recorded in part may wait in the rest of it."""
    cut = BOX.strip().split("\n")
    place = {"file": "a.py", "function": "any", "source": "x"}
    sites = [
        place | {"site": 1, "role": "under-way", "line": 4, "excerpt_line": 1, "excerpt": "\n".join(cut[:7])},
        place | {"site": 2, "role": "sampled", "line": 14, "excerpt_line": 8, "excerpt": "\n".join(cut[7:])},
    ]
    sites[1]["function"] = "train"
    assert early_takes.find(make.process(sites=sites, facts={"world_size": 2})) is not None
    sites[0]["excerpt"] = "\n".join(cut[:6])
    assert early_takes.find(make.process(sites=sites, facts={"world_size": 2})) is None


INBOX = """
class Receive:
    def train(self):
        self.pending.append(dist.irecv(self.inbox, src=0))
        return self.inbox.clone()

    def drain(self):
        while self.pending:
            self.pending.pop(0).wait()
"""
ONE_BY_ONE = """
def train(stage, labels):
    for y in labels:
        pending.append(dist.irecv(inbox, src=0))
        h = inbox.clone().requires_grad_()
        loss(stage(h), y).backward()
        while pending:
            pending.pop(0).wait()
"""


@pytest.mark.parametrize(
    ("text", "reads", "wait"),
    [
        (INBOX, "return self.inbox.clone()", "dist.irecv(self.inbox, src=0).wait()"),
        (INBOX.replace("self.pending.append(dist.irecv(self.inbox, src=0))", "self.work = dist.irecv(self.inbox)")
         .replace("while self.pending", "if self.work").replace("self.pending.pop(0)", "self.work"),
         "return self.inbox.clone()", "self.work.wait()"),
        (ONE_BY_ONE, "h = inbox.clone()", "dist.irecv(inbox, src=0).wait()"),
        (INBOX.replace("        return", "        self.pending[-1].wait()\n        return"), "", ""),
        (INBOX.replace("        return", "        self.drain()\n        return"), "", ""),
        (INBOX.replace("        return", "        dist.barrier()\n        return"), "", ""),
        (INBOX.replace("        return", "        self.inbox = self.spare\n        return"), "", ""),
        (INBOX.replace("self.inbox.clone()", "self.last.clone()"), "", ""),  # another buffer
        (INBOX.replace("self.inbox.clone()", "self.inbox"), "", ""),  # who gets it may drain first
        (INBOX.replace(".wait()", ".done()"), "", ""),  # nobody waits, as far as the script shows
        (ONE_BY_ONE.replace("inbox.clone()", "last.clone()"), "", ""),
    ],
)  # fmt: skip
def test_a_buffer_that_is_read_in_the_function_that_begins_to_fill_it(
    make: Any, text: str, reads: str, wait: str
) -> None:
    status, _, finding = make.check(RULE, job(make, text))
    assert (status == "fired") == bool(reads)
    if reads:
        assert finding.location.line == line_of(text, reads)
        assert finding.title.startswith("A buffer is read before what it receives has arrived")
        assert wait in finding.fix_code.splitlines()[0 if "own names" not in finding.fix_code else 1]


LINK = """
class Link:
    def pull(self):
        self.pending.append(dist.irecv(self.inbox, src=0))
        return self.inbox.clone()

    def drain(self):
        for work in self.pending:
            work.wait()

def train(link, stage, labels):
    for y in labels:
        h = link.pull().requires_grad_(True)
        out = stage(h)
        loss(out, y).backward()
    link.drain()
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LINK, True),
        (LINK.replace("h = link.pull()", "h = link.pull() if late else h0"), False),
        (LINK.replace("        h = link.pull()", "        if late:\n            h = link.pull()"), False),
        (LINK.replace("h = link.pull()", "h = link.other()"), False),
        (LINK.replace("pull", "pop"), False),  # a list has such a method, too
        (LINK.replace("class Link:", "class Other:\n    def pull(self):\n        pass\n\nclass Link:"), False),
    ],
)
def test_a_method_that_a_function_called_above_a_line_that_ran(make: Any, text: str, told: bool) -> None:
    lines = [*textwrap.dedent(text).strip().split("\n"), "", "after = 1"]
    place = {"file": "a.py", "excerpt_line": 1, "excerpt": "\n".join(lines)}
    sites = [
        place | {"site": at, "role": role, "line": line_of(text, words), "function": function, "source": words}
        for at, (role, words, function) in enumerate(
            [("under-way", "self.pending.append", "any"), ("training-call", "out = stage(h)", "train")]
        )
    ]
    found = early_takes.find(make.process(sites=sites, facts={"world_size": 2}))
    assert (found is not None) is told
    assert found is None or found.reads == line_of(text, "return self.inbox.clone()")
