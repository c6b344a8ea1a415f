"""repeated-initialization: what it fires on, and the initialisations that are usual."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tracelyze.testing import SITES

RULE = "repeated-initialization"


def filled(make: Any, **more: Any) -> Any:
    row = {"step": 1, "optimizer": 0, "weights": 12, "repeated": 0, "most": 2, "loaded": 0, "overwritten": 0}
    return make.process(more={"initializations": [row | more]})


def test_three_times_and_after_a_load(make: Any) -> None:
    status, _, finding = make.check(RULE, filled(make, repeated=12, most=3, site=3))
    assert (status, finding.severity, finding.location.line) == ("fired", "info", 60)
    status, _, finding = make.check(RULE, filled(make, loaded=12, overwritten=12, overwritten_site=3))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert finding.location.line == 60
    assert make.check(RULE, filled(make, weights=3, loaded=2, overwritten=2))[0] == "fired", "an encoder of two layers"


@pytest.mark.parametrize(
    ("load", "function", "example"),
    [
        (
            "encoder.load_state_dict(torch.load(path))",
            "build",
            "net.apply(init)\nencoder.load_state_dict(torch.load(path))",
        ),
        ("missing = net.load_state_dict(state, strict=False)", "build", None),  # what it says is read below
        ("encoder.load_state_dict(torch.load(path))", "load", None),  # of another function
    ],
)
def test_what_is_loaded_may_be_a_part_of_the_model(make: Any, load: str, function: str, example: str | None) -> None:
    row = {
        "file": "train.py",
        "excerpt_line": 11,
        "excerpt": f"    {load}\n    net = Net(encoder)\n    net.apply(init)",
    }
    sites = [
        row | {"site": 7, "role": "load_state_dict", "line": 11, "function": function, "source": load},
        row | {"site": 8, "role": "initialization", "line": 13, "function": "build", "source": "net.apply(init)"},
    ]
    filling = {"step": 1, "optimizer": 0, "weights": 12, "repeated": 0, "most": 2, "loaded": 12, "overwritten": 12}
    process = make.process(sites=[*SITES, *sites], more={"initializations": [filling | {"overwritten_site": 8}]})
    code = make.check(RULE, process)[2].fix_code
    usual = "apply(init_weights)\n" in code and ".load_state_dict(state)" in code
    if function == "load":
        assert code == "net.head.apply(init)  # head: the layers that are new, alone"
    else:
        assert (code == f"{example}  # after every initialisation") if example else usual


def test_a_load_of_another_function_stays_where_it_is(make: Any) -> None:
    """What fills is pointed at within the function that the line calls, and left to the layer that is new."""
    text = "        self.embedding.load_state_dict(torch.load(path))"
    load = {"file": "a.py", "line": 6, "function": "load_vectors", "source": text.strip(), "excerpt": text}
    calls = {"file": "a.py", "line": 20, "function": "__init__", "source": "self.reset_top()"}
    new = "        self.top = nn.Linear(8, 2)\n        self.apply(init_weights)"
    fills = {"file": "a.py", "line": 30, "function": "reset_top", "source": "self.apply(init_weights)"}
    sites = [
        load | {"site": 7, "role": "load_state_dict", "excerpt_line": 6},
        calls | {"site": 8, "role": "initialization", "excerpt": "        self.reset_top()", "excerpt_line": 20},
        fills | {"site": 9, "role": "initialization", "excerpt": new, "excerpt_line": 29},
    ]
    filling = {"step": 1, "optimizer": 0, "weights": 12, "repeated": 0, "most": 2, "loaded": 12, "overwritten": 12}
    process = make.process(sites=[*SITES, *sites], more={"initializations": [filling | {"overwritten_site": 8}]})
    found = make.check(RULE, process)[2]
    assert found.location.line == 30
    assert found.fix_code == "self.top.apply(init_weights)  # the new layers alone"


CONSTRUCTORS = """\
class Vectors(nn.Module):
    def __init__(self, path):
        self.table = nn.Embedding(100, 8)
        self.table.load_state_dict(torch.load(path))

class Net(nn.Module):
    def __init__(self, path):
        self.words = Vectors(path)
        self.norm = {norm}
        self.out = nn.Linear(8, 2)
        {fills}"""


@pytest.mark.parametrize(
    ("norm", "fills", "example"),
    [
        (
            "nn.LayerNorm(8)",
            "self.apply(init)",
            "(self.norm, self.out):  # all but self.words, which was loaded\n    part.a",
        ),
        ("Vectors(path)", "self.apply(init)", "self.out.apply(init)"),  # two parts load
        ("nn.LayerNorm(8)", "net.apply(init)", "net.out.apply(init)"),
    ],
)
def test_a_part_that_its_own_constructor_loads(make: Any, norm: str, fills: str, example: str) -> None:
    """Both constructors have one name: what loads in the one cannot be put behind what fills in the other."""
    lines = CONSTRUCTORS.format(norm=norm, fills=fills).splitlines()
    places = {5: 3, 7: 4, 8: 11, 9: 8, 10: 9, 11: 10}  # sites and their lines
    roles = {7: "load_state_dict", 8: "initialization"}
    sites = [
        {"site": site, "role": roles.get(site, "module"), "file": "a.py", "line": at, "function": "__init__"}
        | {"source": lines[at - 1].strip(), "excerpt_line": max(1, at - 3)}
        | {"excerpt": "\n".join(lines[max(1, at - 3) - 1 : at + 3])}
        for site, at in places.items()
    ]
    made = {"words": 9, "words.table": 5, "norm": 10, "out": 11} | ({"norm.table": 5} if "Vectors" in norm else {})
    modules = [{"model": 0, "module": path, "kind": "Linear", "made_at": site} for path, site in made.items()]
    filling = {"step": 1, "optimizer": 0, "weights": 12, "repeated": 0, "most": 2, "loaded": 12, "overwritten": 12}
    more = {"initializations": [filling | {"overwritten_site": 8}], "modules": modules}
    code = make.check(RULE, make.process(sites=sites, more=more))[2].fix_code
    assert example in code
    assert "load_state_dict" not in code


def test_what_is_usual(make: Any) -> None:
    assert make.check(RULE, filled(make))[0] == "passed", "default and one of the program's"
    assert make.check(RULE, filled(make, repeated=4, most=3))[0] == "passed", "a scale of their own for some layers"
    assert make.check(RULE, filled(make, loaded=11, overwritten=1))[0] == "passed", "a new head"
    assert make.check(RULE, filled(make, loaded=12, overwritten=6))[0] == "passed", "the upper layers again"
    assert make.check(RULE, filled(make, loaded=2, overwritten=2))[0] == "passed", "a head that was loaded"
    assert make.check(RULE, filled(make, weights=3, loaded=1, overwritten=1))[0] == "passed", "an embedding"
    assert make.check(RULE, filled(make, weights=2, loaded=2, overwritten=2))[0] == "passed"
    assert make.check(RULE, make.process())[0] == "skipped"


VECTORS = {"loaded": 1, "overwritten": 1, "overwritten_site": 3, "beside": 2}
SEEN = {"name": "Embedding", "site": 3, "tensors": 1, "step": 0, "compared": 1, "gone": 1, "elements": 64,
        "correlation": 0.2, "refilled": 1, "refilled_site": 3}  # fmt: skip


def swept(make: Any, seen: dict[str, Any], **more: Any) -> Any:
    row = {"step": 1, "optimizer": 0, "weights": 3, "repeated": 0, "most": 2} | VECTORS | more
    event = {"kind": "loaded-weights", "time": 1.0, "step": 0, "text": json.dumps(SEEN | seen)}
    loads = [{"missing": 0, "time": 1.0, "step": 0}]
    return make.check(RULE, make.process(more={"initializations": [row], "loads": loads, "events": [event]}))


def test_one_loaded_table_that_is_filled_with_the_rest_of_the_model(make: Any) -> None:
    status, _, finding = swept(make, {})
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "critical", "likely", 60)
    assert "along with 2 weights that were not loaded" in finding.summary
    assert "1 of 1" not in finding.title + finding.summary
    vectors = swept(make, {"by": "from_pretrained"})[2]
    assert "from_pretrained set 1 weight" in vectors.summary
    assert "weight.copy_(vectors)" in vectors.fix_code
    two = {"tensors": 2, "compared": 2, "gone": 2, "refilled": 2}
    assert swept(make, two, weights=12, loaded=2, overwritten=2, beside=10)[0] == "fired"


@pytest.mark.parametrize(
    ("seen", "status"),
    [
        ({"beside": 2}, "fired"),
        ({"beside": 1}, "passed"),
        ({}, "passed"),  # recorded before this was counted
        ({"beside": 2, "gone": 0}, "passed"),  # copied in by hand after that
        ({"beside": 2, "tensors": 2}, "passed"),
    ],
)
def test_one_loaded_table_that_no_optimizer_holds(make: Any, seen: dict[str, Any], status: str) -> None:
    found, _, finding = swept(make, seen, loaded=0, overwritten=0)
    assert found == status
    assert not finding or (finding.severity, finding.location.line, finding.first_step) == ("critical", 60, 1)


@pytest.mark.parametrize(
    ("seen", "more"),
    [
        ({}, {"beside": 0}),  # it is to begin anew
        ({}, {"beside": 1}),
        ({}, {"beside": None}),  # recorded before this was counted
        ({"gone": 0, "refilled": 0, "refilled_site": None}, {}),  # used as it was loaded, and then filled
        ({"gone": 0}, {}),  # filled in part, or filled and copied in by hand
        ({"refilled_site": 2}, {}),
        ({}, {"loaded": 2}),  # of two loaded ones
    ],
)
def test_one_loaded_weight_that_begins_anew_on_purpose(make: Any, seen: dict[str, Any], more: dict[str, Any]) -> None:
    assert swept(make, seen, **more)[0] == "passed"


LOOKED = {"name": "Net", "site": 3, "tensors": 12, "step": 0, "compared": 12, "gone": 12, "elements": 768,
          "correlation": 0.02}  # fmt: skip
FILL = "module.weight.data.normal_(0.0, 0.02)"


def looked(make: Any, *sources: str, role: str = "refill", **more: Any) -> Any:
    event = {"kind": "loaded-weights", "time": 1.0, "step": 0, "text": json.dumps(LOOKED | more)}
    lines = [
        {"site": 20 + n, "role": role, "file": "train.py", "line": 30 + n, "function": "fill", "source": source}
        for n, source in enumerate(sources)
    ]
    loads = [{"missing": 0, "time": 1.0, "step": 0}]
    return make.check(RULE, make.process(sites=[*SITES, *lines], more={"loads": loads, "events": [event]}))


def test_nothing_is_left_of_what_was_loaded(make: Any) -> None:
    status, _, finding = looked(make, FILL, "m.bias.data.uniform_(-1, 1)")
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "critical", "likely", 30)
    assert finding.first_step == 1
    assert looked(make, "m.weight = nn.Parameter(torch.randn(m.weight.shape))")[2].severity == "critical"
    assert looked(make, FILL, tensors=3, compared=3, gone=3)[2].severity == "critical"
    assert looked(make)[2].severity == "info", "weights of another file may have been copied in by hand"
    assert looked(make, "x = torch.randn(32, 8)")[2].severity == "info", "the script draws no weights"


@pytest.mark.parametrize(
    "more",
    [
        {"gone": 0, "correlation": 1.0},
        {"gone": 8},  # the upper layers again
        {"correlation": 0.45},  # an average of five
        {"compared": 4, "gone": 4},  # most were replaced by adapters
        {"tensors": 2, "compared": 2, "gone": 2},
    ],
)
def test_loaded_weights_that_still_hold_what_was_loaded(make: Any, more: dict[str, Any]) -> None:
    assert looked(make, FILL, **more)[0] == "passed"
