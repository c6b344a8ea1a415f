"""Rules about graphs that are kept, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.diagnosis import Exit
from tracelyze.testing import SITES

COUNT = 400


def outcome(make, rule: str, **columns: Any) -> tuple[str, str]:
    status, _, finding = make.check(rule, make.process(make.steps() | columns))
    return status, finding.severity if finding else ""


def test_retain_graph(make) -> None:
    growing = list(range(COUNT))
    assert outcome(make, "retain-graph", graph_retained=[True] * COUNT) == ("fired", "warning")  # nothing piles up
    held = make.check("retain-graph", make.process(make.steps() | {"graph_retained": [True] * COUNT}))[2]
    assert "as long as something holds the loss" in held.summary, "a loss that a function has let go of holds nothing"
    assert "pile up" not in " ".join(held.excluded), "nothing piles up here"
    assert outcome(make, "retain-graph", graph_retained=[True] * COUNT, live_graphs=growing) == ("fired", "warning")
    assert outcome(make, "retain-graph", graph_retained=[False] * COUNT, live_graphs=growing) == ("passed", "")
    used = [{"time": 1.0, "step": 1, "kind": "kept-graph", "name": "torch.autograd.grad"}]
    process = make.process(make.steps() | {"graph_retained": [True] * COUNT}, events=used)
    assert make.check("retain-graph", process)[0] == "passed", "a graph that is gone through once more"
    assert outcome(make, "retain-graph")[0] == "skipped"


@pytest.mark.parametrize(
    ("name", "several", "detached"),
    [
        ("hidden", 1.0, "net.hidden = tuple(part.detach() for part in net.hidden)"),
        ("rnn.state", 0.0, "net.rnn.state = net.rnn.state.detach()"),
        ("", 0.0, "hidden = hidden.detach()"),
    ],
)
def test_a_kept_graph_that_leads_to_that_of_the_step_before(make, name: str, several: float, detached: str) -> None:
    """Without retain_graph=True the next backward would fail: the state is to be detached."""
    steps = make.steps() | {"graph_retained": [True] * COUNT, "live_graphs": [1] * COUNT}
    sites = [SITES[0] | {"role": "backward", "source": "loss.backward(retain_graph=True)"}]
    event = {"kind": "earlier-graph", "name": name, "text": "step before", "value": several, "step": 2, "time": 1.0}
    models = [{"model": 0, "name": "Net", "called_as": "net"}]
    finding = make.check("retain-graph", make.process(steps, events=[event], models=models, sites=sites))[2]
    assert "nothing uses it" not in finding.title
    assert "otherwise the next step's backward fails" in finding.fix
    assert finding.diff is None
    assert finding.fix_code.split("\n")[1].startswith(detached)
    once = make.process(steps, events=[event | {"name": "", "text": "once"}], models=models, sites=sites)
    status, reason, _ = make.check("retain-graph", once)
    assert (status, "made once" in reason) == ("passed", True)


@pytest.mark.parametrize(
    ("microbatches", "source", "code"),
    [
        (1, "loss.backward(retain_graph=True)", "total.backward()"),
        (1, "engine.backward(w * loss, retain_graph=True)", "engine.backward(total)"),
        (2, "loss.backward(retain_graph=True)", ""),  # each goes through a graph of its own
    ],
)
def test_one_line_that_calls_all_backwards_of_a_step(make, microbatches: int, source: str, code: str) -> None:
    steps = make.steps() | {"graph_retained": [True] * COUNT, "backwards": [2] * COUNT}
    steps |= {"microbatches": [microbatches] * COUNT}
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"for loss in losses:\n    {source}"}
    sites = [{"site": 2, "role": "backward", "line": 2, "source": source, **place}]
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (finding.diff is None) == bool(code), "without the graph the second backward fails"
    assert code in finding.fix_code
    assert ("total = total + " in finding.fix_code) == bool(code)


@pytest.mark.parametrize(
    ("source", "backwards", "edited", "code"),
    [
        ("loss.backward(retain_graph=True)", 1, True, "loss.backward()"),
        ("self.manual_backward(loss, retain_graph=True)", 1, True, "self.manual_backward(loss)"),
        (
            "loss.backward(retain_graph=loss is not losses[-1])",
            1,
            False,
            "",
        ),  # a wrong condition, but one that is meant
        ("loss.backward(retain_graph=True)", 2, False, "loss.backward()  # the last one of the step"),
    ],
)
def test_a_graph_that_another_backward_of_the_step_may_need_is_not_edited_away(
    make, source: str, backwards: int, edited: bool, code: str
) -> None:
    """Whether each of several backwards has a batch of its own was not recorded: the first may need the graph."""
    steps = make.steps() | {"graph_retained": [True] * COUNT, "backwards": [backwards] * COUNT}
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"for loss in losses:\n    {source}"}
    sites = [{"site": 2, "role": "backward", "line": 2, "source": source, **place}]
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (finding.diff is not None, finding.fix_code.startswith(code)) == (edited, True)
    assert bool(finding.fix_code) == bool(code)


@pytest.mark.parametrize(
    ("function", "lines", "backwards", "edited"),
    [
        ("for x in data:\n    a.backward(retain_graph=True)\n    b.backward(retain_graph=True)", (2, 3), 2, True),
        ("for x in data:\n    a.backward(retain_graph=True)\n\n    b.backward(retain_graph=True)", (2, 4), 2, True),
        ("for x in data:\n    a.backward(retain_graph=True)\n    b.backward(retain_graph=True)", (2, 3), 4, False),
        ("if x:\n    a.backward(retain_graph=True)\nelse:\n    b.backward(retain_graph=True)", (2, 4), 2, False),
        ("if x:\n    a.backward(retain_graph=True)\nb.backward(retain_graph=True)", (2, 3), 2, False),
    ],
)
def test_the_last_of_backwards_in_lines_of_their_own_frees_the_graph(
    make, function: str, lines: tuple[int, int], backwards: int, edited: bool
) -> None:
    """Where one line may call several backwards of a graph, or not all of them in each step, it stays as it is."""
    steps = make.steps() | {"graph_retained": [True] * COUNT, "backwards": [backwards] * COUNT}
    place = {"role": "backward", "file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": function}
    sources = [one.strip() for one in function.split("\n") if "backward" in one]
    sites = [place | {"site": 9 - at, "line": at, "source": one} for at, one in zip(lines, sources, strict=True)]
    optimizers = [{"optimizer": 0, "name": "SGD", "backward_site": 9 - lines[1]}]
    finding = make.check("retain-graph", make.process(steps, sites=sites, optimizers=optimizers))[2]
    assert (finding.diff is not None) == edited
    if edited:
        assert [one.strip() for one in finding.diff.added] == ["b.backward()"]


@pytest.mark.parametrize("more", [{}, {"graph_retained": [True] * COUNT}])
def test_graphs_that_are_freed_as_the_loop_ends(make, more: dict[str, Any]) -> None:
    steps = make.steps() | {"live_graphs": [*range(1, COUNT), 0]} | more  # locals of train() are gone by the last row
    leak = make.check("memory-leak", make.process(steps))[2]
    assert f"{COUNT - 1} autograd graphs are kept alive" in leak.title
    assert leak.evidence[0].value == COUNT - 1
    assert ("Leave the backward pass as it is" in leak.fix) == (not more), "a carried state needs retain_graph gone too"
    if more:
        retained = make.check("retain-graph", make.process(steps))[2]
        assert f"up to {COUNT - 1} graphs" in retained.title
        assert retained.evidence[-1].fires_at == ">="


@pytest.mark.parametrize(
    ("call", "around", "name"),
    [
        ("logits, h = model(x, h)", "loss.backward(retain_graph=True)", "h"),
        ("h = cell(x, h)", "", "h"),
        ("logits, self.state = self.net(x, self.state)", "", "self.state"),
        ("logits, h = model(x, h)", "h = h.detach()", ""),
        ("logits, h = model(x, h)", "state = tuple(h.detach() for h in state)", ""),
        ("x = encoder(x)", "", ""),
        ("logits = model(x, mask)", "", ""),
    ],
)
def test_state_that_is_carried_with_its_graph(make, call: str, around: str, name: str) -> None:
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"    {call}\n    {around}"}
    sites = [
        {"site": 1, "role": "training-call", "line": 1, "source": call, **place},
        {"site": 2, "role": "backward", "line": 2, "source": "loss.backward(retain_graph=True)", **place},
    ]
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (f"{name} = {name}.detach()" in finding.fix_code and f"`{name}`" in finding.fix) == bool(name)


@pytest.mark.parametrize(
    ("lines", "said", "advice"),
    [
        (
            ["curve.append(loss)"],
            "`curve.append(loss)` keeps a tensor",
            "detach what line 4 keeps: `curve.append(loss.de",
        ),
        (["curve.append(loss)", "seen.append(loss)"], "Each of the lines 4 and 5", "detach what the loop keeps"),
        (["curve.append(loss.item())"], "something from every step is kept", "detach what the loop keeps"),
    ],
)
def test_what_keeps_the_graphs_that_a_backward_retains(make, lines: list[str], said: str, advice: str) -> None:
    """No state is carried that the text shows: nothing is said of one, and the backward is edited."""
    loop = ["for step in steps:", "    loss = criterion(model(x), y)", "    loss.backward(retain_graph=True)"]
    text = "\n".join([*loop, *(f"    {line}" for line in lines)])
    place = {"file": "a.py", "function": "<module>", "excerpt_line": 1, "excerpt": text}
    sites = [{"site": 2, "role": "backward", "line": 3, "source": "loss.backward(retain_graph=True)", **place}]
    for number, line in enumerate(lines, 4):
        sites += [place | {"site": number, "role": "keeps", "line": number, "source": line}] * ("item" not in line)
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert said in finding.summary
    assert advice in finding.fix
    assert finding.diff.added == ["    loss.backward()"]
    assert finding.fix_code == "loss.backward()"
    assert "hidden" not in finding.fix_code + finding.fix
    assert "real cause" not in finding.summary
    several = steps | {"backwards": [2] * COUNT}
    finding = make.check("retain-graph", make.process(several, sites=sites))[2]
    assert finding.diff is None, "the first backward of a step may need the graph"


@pytest.mark.parametrize(
    ("line", "carried"),
    [
        ("self.centres = self.centres * (1 - rate) + mean * rate", "self.centres"),
        ("self.h = torch.tanh(self.into(x) + self.over(self.h))", "self.h"),
        ("self.h = torch.tanh(self.into(x))", ""),
        ("self.seen = self.seen + [self.into(x)]", ""),  # a list, which has no graph of its own
    ],
)
def test_a_line_that_makes_a_value_of_that_of_the_step_before(make, line: str, carried: str) -> None:
    """The backward is not edited by itself: without retain_graph=True it fails where the loss is computed from it."""
    kept = {"site": 1, "role": "keeps", "file": "a.py", "line": 22, "function": "update", "source": line}
    kept |= {"excerpt_line": 21, "excerpt": f"    def update(self, x):\n        {line}"}
    backward = "loss.backward(retain_graph=True)"
    called = {"site": 2, "role": "backward", "file": "a.py", "line": 30, "function": "main", "source": backward}
    called |= {"excerpt_line": 30, "excerpt": f"    {backward}"}
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=[kept, called]))[2]
    if not carried:
        assert (finding.location.line, finding.diff.added) == (30, ["    loss.backward()"])
        return
    assert (finding.location.line, finding.seen_at.line, finding.diff) == (22, 30, None)
    guard = f"if torch.is_tensor({carried}):\n    {carried} = {carried}.detach()"
    assert finding.fix_code == f"# in place of line 22:\n{guard}\n{line}\n# in place of line 30:\nloss.backward()"
    assert f"line 22 makes `{carried}` of its value at the step before" in finding.summary


def test_a_line_of_another_file_keeps_the_graphs_that_a_backward_retains(make) -> None:
    sites = [
        {
            "site": 1,
            "role": "keeps",
            "file": "meters.py",
            "line": 5,
            "function": "add",
            "source": "self.all.append(one)",
        },
        {"site": 2, "role": "backward", "file": "a.py", "line": 3, "source": "loss.backward(retain_graph=True)"},
    ]
    sites[0] |= {"excerpt_line": 4, "excerpt": "def add(self, one):\n    self.all.append(one)"}
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert "`self.all.append(one)` keeps a tensor beyond its step" in finding.summary
    assert (
        'line 5 of meters.py keeps: `self.all.append(one.detach() if hasattr(one, "detach") else one)`.' in finding.fix
    )


@pytest.mark.parametrize(
    ("call", "kind", "detached"),
    [
        ("logits, state = net(x, state)", "LSTM", "state = tuple(part.detach() for part in state)"),
        ("logits, state = net(x, state)", "GRU", "state = state.detach()"),
        ("logits, self.h = net(x, self.h)", "Cell", "self.h = self.h.detach()  # of an LSTM: tuple("),
        ("logits = net(x)", "LSTM", "hidden = hidden.detach()"),
    ],
)
def test_backward_into_the_step_before(make, call: str, kind: str, detached: str) -> None:
    sites = [
        {"site": 1, "role": "training-call", "line": 7, "source": call, "file": "a.py", "function": "train"},
        {"site": 2, "role": "exception", "line": 9, "source": "loss.backward()", "file": "a.py", "function": "train"},
    ]
    ended = {"kind": "exception", "name": "RuntimeError", "step": 1, "time": 1.0, "file": "a.py", "line": 9}
    ended |= {"text": "Trying to backward through the graph a second time.", "source": "loss.backward()"}
    modules = [{"model": 0, "module": "", "kind": "Net"}, {"model": 0, "module": "rnn", "kind": kind}]
    process = make.process(sites=sites, events=[ended], end=Exit("exception", 1), more={"modules": modules})
    finding = make.check("crash", process)[2]
    assert detached in finding.fix_code
    assert finding.location.function == "train", "names of that function are the script's own"
    assert ("in line 7" in finding.fix) == ("hidden" not in detached)
    assert "retain_graph=True silences" in finding.fix


OUTSIDE = """\
def main():
    codes = torch.tanh(encode(x))
    for epoch in range(3):
        for one in codes.split(8):
            loss = net(one).mean()
            loss.backward()"""


@pytest.mark.parametrize(
    ("line", "step", "found"),
    [
        ("codes = torch.tanh(encode(x))", 1, True),
        ("codes = torch.tanh(encode(x)).detach()", 1, False),
        ("codes = torch.tanh(encode(x))", 30, False),  # a later backward ran into it for another reason
        ("net(x)", 1, False),  # once to see its shapes
        ("shown = net(x)", 1, False),  # which is called in the loop as well
    ],
)
def test_a_graph_that_is_made_outside_of_the_loop(make, line: str, step: int, found: bool) -> None:
    lines = [line.lstrip() for line in OUTSIDE.replace("codes = torch.tanh(encode(x))", line).splitlines()]
    rows = [("training-call", 2), ("epochs", 3), ("loop", 4), ("training-call", 5), ("exception", 6)]
    place = {"file": "a.py", "function": "main"}
    sites = [
        place | {"site": at, "role": role, "line": at, "source": lines[at - 1]}
        | {"excerpt_line": at, "excerpt": "    " + lines[at - 1]}
        for role, at in rows
    ]  # fmt: skip
    ended = {"kind": "exception", "name": "RuntimeError", "step": step, "time": 1.0, "file": "a.py", "line": 6}
    ended |= {"text": "Trying to backward through the graph a second time.", "source": "loss.backward()"}
    models = [{"model": 0, "name": "Linear", "called_as": "encode"}, {"model": 1, "name": "Net", "called_as": "net"}]
    process = make.process(sites=sites, events=[ended], end=Exit("exception", 1), models=models)
    finding = make.check("crash", process)[2]
    assert (finding.location.line, "Here line 2 calls encode" in finding.summary) == (
        (2, True) if found else (6, False)
    )
    assert finding.fix_code.startswith("with torch.no_grad():\n    codes = ") == found
