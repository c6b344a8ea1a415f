"""Linear layers in a row without an activation between them, and the rows that have one."""

from __future__ import annotations

from typing import Any

import pytest

LOOKS = [1, 2, 11, 16, 24, 36, 54, 81, 121, 181, 271, 391]


def stack(*layers: tuple[int, int, str | None]) -> list[dict[str, Any]]:
    """Looks at layers of these inputs, outputs and sources."""
    return [
        {
            "time": float(step),
            "step": step,
            "order": index,
            "module": f"l{index}",
            "kind": "Linear",
            "alert": False,
            "inputs": inputs,
            "outputs": outputs,
            "fed_by": source,
            "zeros": 0.0,
        }
        for step in LOOKS
        for index, (inputs, outputs, source) in enumerate(layers)
    ]


def linear(make: Any, *layers: tuple[int, int, str | None]) -> Any:
    return make.check("linear-stack", make.process(more={"activations": stack(*layers)}))


def test_layers_in_a_row(make) -> None:
    status, _, finding = linear(make, (8, 64, None), (64, 64, "l0"), (64, 1, "l1"))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert finding.title.startswith("3 layers")
    assert linear(make, (8, 64, None), (64, 10, "l0"))[2].severity == "info", "one pair"


def test_layers_in_several_places(make) -> None:
    names = ["blocks.0.up", "blocks.0.down", "blocks.1.up", "blocks.1.down"]
    fed = [None, "blocks.0.up", None, "blocks.1.up"]
    rows = stack(*[(8, 16, None), (16, 8, None)] * 2)
    rows = [row | {"module": names[row["order"]], "fed_by": fed[row["order"]]} for row in rows]
    idle = {"model": 0, "module": "blocks.0.act", "kind": "Identity", "made_at": 9}
    source = "self.act = TABLE.get(name, nn.Identity())"
    site = {"site": 9, "role": "module", "file": "a.py", "line": 3, "function": "__init__", "source": source}
    more = {"activations": rows, "modules": [idle | {"module": "", "kind": "Net"}, idle]}
    finding = make.check(
        "linear-stack", make.process(more=more, sites=[site | {"excerpt_line": 3, "excerpt": source}])
    )[2]
    assert finding.title.startswith("In 2 places"), "no row of three layers"
    assert finding.location.line == 3
    assert finding.fix_code == "self.act = TABLE[name]  # raises an error for an unknown name"
    assert "Line 3 gives one for each name that it does not find: look at `name`." in finding.summary
    assert finding.fix.startswith("Give line 3 a name that it finds")
    for source, code in (
        (
            "self.act = getattr(nn, cfg.act, nn.Identity)()",
            "self.act = getattr(nn, cfg.act)()  # raises an error for an unknown name",
        ),
        ("self.act = nn.Identity()  # for now", "self.act = nn.GELU()"),
        ("self.act = act_layer()", "self.act = nn.GELU()"),  # a class that turned out to be Identity
        ("self.act = make(kind)", "x = torch.relu(self.up(x))\nx = self.down(x)"),
    ):
        at = site | {"source": source, "excerpt_line": 3, "excerpt": source}
        assert make.check("linear-stack", make.process(more=more, sites=[at]))[2].fix_code.endswith(code)


@pytest.mark.parametrize(
    ("above", "told"),
    [
        (["act = TABLE.get(kind, nn.Identity)"], True),
        (["act = TABLE[kind]"], False),
        (["act = TABLE.get(kind, nn.Identity)", "act = wrapped(act)"], False),
        (["other = TABLE.get(kind, nn.Identity)"], False),
    ],
)
def test_a_name_that_falls_back_to_an_identity(make, above: list[str], told: bool) -> None:
    """In a row of numbered modules that feeds a head, the last Identity stands behind the row."""
    lines = ["def layer(a, b, kind):", *(f"    {one}" for one in above), "    return [nn.Linear(a, b), act()]"]
    site = {"site": 9, "role": "module", "file": "a.py", "line": len(lines), "function": "layer", "excerpt_line": 1}
    site |= {"source": lines[-1].strip(), "excerpt": "\n".join(lines)}
    names = ["body.0", "body.2", "body.4", "head"]
    rows = stack((8, 64, None), (64, 64, ""), (64, 32, ""), (32, 1, ""))
    rows = [
        row | {"module": names[at], "fed_by": names[at - 1] if at else None} for row in rows for at in [row["order"]]
    ]
    kinds = {"": "Net", "head": "Linear"} | {f"body.{at}": ("Linear", "Identity")[at % 2] for at in range(6)}
    modules = [{"model": 0, "module": name, "kind": kind, "made_at": 9} for name, kind in kinds.items()]
    finding = make.check("linear-stack", make.process(more={"activations": rows, "modules": modules}, sites=[site]))[2]
    assert "Modules body.1, body.3 and body.5, between them, are Identities" in finding.summary
    assert ("Line 2 gives one for each name that it does not find: look at `kind`." in finding.summary) is told
    assert (finding.fix_code == "act = TABLE[kind]  # raises an error for an unknown name") is told


ROW = """def __init__(self):
    rows = []
    for width in widths:
        rows.append(nn.Linear(width, width))
        if self.rate > 0:
            rows += [act(), nn.Dropout(self.rate)]
    self.body = nn.Sequential(*rows)
    self.head = nn.Linear(width, 1)
"""


def made_in_a_row(make: Any, source: str, lines: tuple[int, ...], ends: str = "head", kind: str = "Sequential") -> Any:
    """body.0 to body.2 and then `ends`, each fed by the one before, made at these lines of a script."""
    names = ["body.0", "body.1", "body.2", ends]
    rows = stack((8, 8, None), (8, 8, "body.0"), (8, 8, "body.1"), (8, 8, "body.2"))
    rows = [row | {"module": names[row["order"]]} for row in rows]
    text = source.splitlines()
    sites = [
        {"site": line, "role": "module", "file": "a.py", "line": line, "function": "__init__",
         "source": text[line - 1].strip(), "excerpt": source.rstrip(), "excerpt_line": 1}
        for line in {*lines}
    ]  # fmt: skip
    modules = [{"model": 0, "module": "body", "kind": kind, "made_at": None}]
    modules += [{"model": 0, "module": n, "kind": "Linear", "made_at": at} for n, at in zip(names, lines, strict=True)]
    return make.check("linear-stack", make.process(more={"activations": rows, "modules": modules}, sites=sites))[2]


def test_an_activation_under_a_condition_that_did_not_hold(make) -> None:
    found = made_in_a_row(make, ROW, (4, 4, 4, 8))
    assert "Line 6 adds an activation, but only if line 5 holds: `if self.rate > 0:`" in found.summary
    assert found.location.line == 5
    lines = ["rows.append(nn.Linear(width, width))", "rows.append(act())  # here, and no longer on line 6"]
    assert found.fix_code.splitlines() == lines


def test_a_condition_that_adds_something_else_is_no_cause(make) -> None:
    for other in ("nn.Dropout(self.rate)", "nn.LayerNorm(width), nn.Dropout(self.rate)"):
        found = made_in_a_row(make, ROW.replace("act(), nn.Dropout(self.rate)", other), (4, 4, 4, 8))
        assert "only if" not in found.summary
        assert found.location.line == 4
        assert found.fix_code == "rows.append(nn.Linear(width, width))\nrows.append(nn.GELU())"


def test_a_statement_that_makes_the_last_layer_too_gets_no_activation_behind_it(make) -> None:
    found = made_in_a_row(make, ROW, (4, 4, 4, 4), "body.3")
    assert "only if" in found.summary
    source = ROW.replace("        if self.rate > 0:\n            rows += [act(), nn.Dropout(self.rate)]\n", "")
    found = made_in_a_row(make, source, (4, 4, 4, 4), "body.3")
    assert [line.strip() for line in found.fix_code.splitlines()] == [
        "for width in widths:", "rows.append(nn.Linear(width, width))", "rows.append(nn.GELU())",
        "rows.pop()  # behind the loop: the last layer gives the output",
    ]  # fmt: skip
    source = source.replace("    self.body", "        rows.append(nn.Dropout(0.1))\n    self.body")
    found = made_in_a_row(make, source, (4, 4, 4, 4), "body.3")
    assert "pop" not in found.fix_code, "what it takes off is no activation then"


def test_a_sequential_gets_its_activations_where_it_is_made(make) -> None:
    source = """\
def __init__(self):
    self.body = nn.Sequential(
        nn.Linear(8, 8),
        nn.Linear(8, 8),
        nn.Linear(8, 8),
        nn.Linear(8, 1),
    )
"""
    found = made_in_a_row(make, source, (3, 4, 5, 6), "body.3")
    assert [line.strip() for line in found.fix_code.splitlines()[1:-1]] == [
        "nn.Linear(8, 8), nn.GELU(),", "nn.Linear(8, 8), nn.GELU(),", "nn.Linear(8, 8), nn.GELU(),", "nn.Linear(8, 1),"
    ]  # fmt: skip


def test_of_layers_made_in_several_places_the_whole_row_gets_activations_in_forward(make) -> None:
    found = made_in_a_row(make, ROW, (4, 3, 4, 8))
    lines = ["for layer in self.body:", "    x = torch.relu(layer(x))", "x = self.head(x)"]
    assert found.fix_code.splitlines()[-3:] == lines
    found = made_in_a_row(make, ROW, (4, 3, 4, 8), "body.3")
    assert found.fix_code.endswith("x = self.body[-1](x)")


def test_an_identity_behind_the_layers_is_not_between_them(make) -> None:
    rows = [row | {"module": f"net.{row['order']}"} for row in stack((8, 16, None), (16, 16, "net.0"))]
    for at, expected in ((2, False), (1, True)):
        named = [row | {"module": f"net.{3 * row['order'] * (at == 1) + row['order'] * (at == 2)}"} for row in rows]
        idle = {"model": 0, "module": f"net.{at}", "kind": "Identity"}
        found = make.check("linear-stack", make.process(more={"activations": named, "modules": [idle]}))[2]
        assert (f"net.{at}, in the same module, is an Identity" in found.summary) is expected
    rows = [row | {"module": str(2 * row["order"]), "fed_by": str(2 * row["order"] - 2) if row["order"] else None}
            for row in stack((6, 64, None), (64, 64, "0"), (64, 3, "2"))]  # fmt: skip
    idle = [{"model": 0, "module": str(at), "kind": "Identity"} for at in (1, 3)]
    found = make.check("linear-stack", make.process(more={"activations": rows, "modules": idle}))[2]
    assert "Modules 1 and 3, between them, are Identities and change nothing" in found.summary
    assert found.fix.startswith("Make modules 1 and 3 activations")
    assert "`0` into `2`" in found.summary
    whole = [{"model": 0, "module": "", "kind": "Sequential"}, *idle]
    found = make.check("linear-stack", make.process(more={"activations": rows, "modules": whole}))[2]
    assert found.fix_code == "", "a row that is the whole model has no forward"


BUILT = """\
def build(sizes, activation=nn.Identity, output_activation=nn.Identity):
    layers = []
    for i in range(3):
        act = activation if i < 2 else output_activation
        layers += [nn.Linear(sizes[i], sizes[i + 1]), act()]
    return nn.Sequential(*layers)"""


PASSED = "model = build([6, 64, 64, 3], activation=nn.Tanh)"


@pytest.mark.parametrize(
    ("source", "first", "calls", "line", "code"),
    [
        (BUILT, 1, ["model = build([6, 64, 64, 3])"], 20, PASSED),
        (BUILT.partition("\n")[2], 2, ["model = build([6, 64, 64, 3])"], 20, PASSED),
        (BUILT, 1, ["model = build([6, 64, 64, 3])", "other = build([6, 3])"], 1, ""),
        (BUILT.replace("act = activation", "act = kinds[i]"), 1, ["model = build([6, 64, 64, 3])"], 5, ""),
        (BUILT, 1, ["model = build(*sizes)"], 1, ""),
    ],
)
def test_an_identity_by_default_is_changed_where_the_function_is_called(
    make, source: str, first: int, calls: list[str], line: int, code: str
) -> None:
    rows = [row | {"module": str(2 * row["order"]), "fed_by": str(2 * row["order"] - 2) if row["order"] else None}
            for row in stack((6, 64, None), (64, 64, "0"), (64, 3, "2"))]  # fmt: skip
    own = {"file": "a.py", "function": "build", "excerpt": source, "excerpt_line": first, "role": "module"}
    sites = [own | {"site": 5, "line": 5, "source": source.splitlines()[5 - first].strip()}]
    sites += [
        {"site": at, "role": "module", "file": "a.py", "line": at, "function": "main", "source": call,
         "excerpt": f"    {call}", "excerpt_line": at}
        for at, call in enumerate(calls, 20)
    ]  # fmt: skip
    kinds = {"": "Sequential", "0": "Linear", "1": "Identity", "2": "Linear", "3": "Identity", "4": "Linear"}
    modules = [{"model": 0, "module": name, "kind": kind, "made_at": 5} for name, kind in kinds.items()]
    found = make.check("linear-stack", make.process(more={"activations": rows, "modules": modules}, sites=sites))[2]
    assert (found.location.line, found.fix_code) == (line, code)


def test_layers_that_belong_together(make) -> None:
    assert linear(make, (64, 8, None), (8, 64, "l0"), (64, 4, None))[0] == "passed", "a bottleneck"
    assert linear(make, (8, 64, None), (64, 64, "l0"), (64, 64, "l0"), (64, 64, "l0"))[0] == "passed", "a shared input"
    assert linear(make, (8, 64, None), (64, 64, None), (64, 1, None))[0] == "passed", "activations between them"
    stem = [
        row | {"module": f"layers.{row['module']}"} if row["order"] else row
        for row in stack((8, 9, None), (9, 9, "l0"))
    ]
    assert make.check("linear-stack", make.process(more={"activations": stem}))[0] == "passed", "a residual block"
    assert linear(make, (8, 64, None), (64, 64, "l0"), (64, 1, "l1"))[0] == "fired"
    now_and_then = [row | {"fed_by": None} if row["step"] == 24 else row for row in stack((8, 9, None), (9, 9, "l0"))]
    assert make.check("linear-stack", make.process(more={"activations": now_and_then}))[0] == "passed"
    assert make.check("linear-stack", make.process())[0] == "skipped"
