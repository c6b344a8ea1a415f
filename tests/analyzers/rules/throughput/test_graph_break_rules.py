"""graph-breaks: functions in pieces, functions that are compiled again and again, and what only looks like it."""

from __future__ import annotations

from typing import Any

import pytest

RULE = "graph-breaks"
ITEM = "Unsupported Tensor.item() call with capture_scalar_outputs=False Explanation: Dynamo does not support tracing"
WHOLE = {
    "step": 0,
    "kind": "graph",
    "function": "forward",
    "resumed": False,
    "site": 3,
    "operators": 9,
    "seconds": 1.5,
    "frame": 0,
    "again": 0,
}
REST = WHOLE | {"resumed": True, "operators": 4, "frame": 1}


def broken(reason: str = ITEM, **more: Any) -> dict[str, Any]:
    return {"step": 0, "kind": "break", "function": "forward", "site": 3, "reason": reason} | more


def judged(make: Any, *rows: dict[str, Any], count: int = 400) -> Any:
    return make.check(RULE, make.process(make.steps(count), more={"compilations": list(rows)}))


def test_a_forward_in_two_pieces(make: Any) -> None:
    status, _, finding = judged(make, broken(), WHOLE, REST)
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "warning", "certain", 60)
    assert "the value of a tensor is read" in finding.summary
    other = judged(make, broken("some reason that is new in a later torch"), WHOLE, REST)[2]
    assert "some reason that is new" in other.summary


@pytest.mark.parametrize(
    "rows",
    [
        (WHOLE,),
        (broken(), WHOLE),  # at the end: nothing is compiled behind it
        (broken(), WHOLE, REST | {"operators": 0}),
        (broken("Unsupported Tensor.backward() call"), WHOLE, REST),  # a compiled training step
        (broken("Attempted to inline function marked as skipped Explanation: `Optimizer.zero_grad`"), WHOLE, REST),
        (broken("Call to `torch._dynamo.graph_break()`"), WHOLE, REST),
        (broken("Skip calling `torch.compiler.disable()`d function"), WHOLE, REST),
        (broken(site=None), WHOLE, REST),  # in a library, where nobody can change it
        (broken(function="validate"), WHOLE, REST),  # what goes on is another function
        (WHOLE, WHOLE | {"again": 1, "reason": "tensor 'x' size mismatch at index 0. expected 20, actual 32"}),
    ],
)
def test_what_is_in_order(make: Any, rows: tuple[dict[str, Any], ...]) -> None:
    assert judged(make, *rows)[0] == "passed"


def test_a_function_that_is_left_to_python_as_a_whole(make: Any) -> None:
    dropped = broken(kind="given-up", frame=1)
    status, _, finding = judged(make, dropped)
    assert (status, finding.confidence, finding.location.line) == ("fired", "certain", 60)
    assert "gives up on forward" in finding.title
    assert judged(make, dropped, WHOLE)[0] == "fired"  # another function, compiled before
    assert judged(make, dropped, WHOLE | {"frame": 2})[0] == "passed"  # what it calls is compiled
    assert judged(make, dropped | {"reason": "Unsupported Tensor.backward() call"}, WHOLE)[0] == "passed"
    assert judged(make, dropped | {"site": None}, WHOLE)[0] == "passed"  # a loop in a library


@pytest.mark.parametrize(
    ("source", "example"),
    [
        ("self.active = (h > 0).float().mean().item()", "self.active = (h > 0).float().mean().detach()"),
        ("stats['norm'] = float(h.norm())", "stats['norm'] = h.norm().detach()"),
        ("self.share = float(a / b)", "self.share = (a / b).detach()"),
        ("scale = h.abs().max().item()", ""),  # which the lines below may need as a number
        ("self.log.append(h.mean().item())", ""),
        ("self.ratio = h.mean().item() / 2", ""),
    ],
)
def test_a_number_that_a_forward_keeps_may_stay_a_tensor(make: Any, source: str, example: str) -> None:
    site = {"site": 3, "role": "compiled", "file": "net.py", "line": 60, "function": "forward", "source": source}
    site |= {"excerpt": f"        {source}", "excerpt_line": 60}
    process = make.process(make.steps(400), sites=[site], more={"compilations": [broken(), WHOLE, REST]})
    code = make.check(RULE, process)[2].fix_code
    assert "fullgraph=True" in code
    assert (f"\n{example}  # in place of line 60" in code) == bool(example)
    assert (".detach()" in code) == bool(example)


@pytest.mark.parametrize(
    ("source", "example"),
    [
        ("step = torch.compile(train_step)", "step = torch.compile(train_step, fullgraph=True)"),
        ("@torch.compile", "@torch.compile(fullgraph=True)"),
        ("net.compile()", "model = torch.compile(model, fullgraph=True)"),
    ],
)
def test_the_example_compiles_what_the_script_compiles(make: Any, source: str, example: str) -> None:
    """A training step, or a function with a decorator, is no model."""
    site = {"site": 3, "role": "compiled", "file": "net.py", "line": 60, "function": "forward", "source": "h.item()"}
    made = {"site": 9, "role": "constant", "file": "net.py", "line": 80, "function": "main", "source": source,
            "excerpt": source, "excerpt_line": 80}  # fmt: skip
    process = make.process(make.steps(400), sites=[site, made], more={"compilations": [broken(), WHOLE, REST]})
    code = make.check(RULE, process)[2].fix_code
    assert example in code


def test_nothing_is_called_whole_where_no_graph_was_made(make: Any) -> None:
    assert judged(make, WHOLE | {"operators": None})[0] == "skipped"


def test_a_run_that_has_hardly_begun(make: Any) -> None:
    assert judged(make, broken(), WHOLE, REST, count=40)[0] == "passed"
    assert judged(make, broken(), WHOLE, REST, count=60)[0] == "fired"


def test_compiled_as_often_as_torch_does(make: Any) -> None:
    often = [WHOLE | {"again": n, "reason": f"len(self.means) == {n}" if n else None} for n in range(8)]
    status, _, finding = judged(make, *often)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "8 times" in finding.title
    assert "recompile_limit" in finding.summary
    more = judged(make, *often, WHOLE | {"again": 8, "reason": "x"})[2]
    assert "9 times" in more.title
    assert "recompile_limit" not in more.summary, "which was raised"
    assert finding.cost.seconds == pytest.approx(7 * 1.5)
    assert judged(make, *often[:7])[0] == "passed"
    layers = [WHOLE | {"frame": n} for n in range(12)]
    assert judged(make, *layers)[0] == "passed", "twelve functions, each compiled once"


def test_runs_without_compiling(make: Any) -> None:
    assert make.check(RULE, make.process())[0] == "skipped"
