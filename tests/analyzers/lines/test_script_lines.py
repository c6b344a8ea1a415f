"""A line of the script's text is named where evidence asks for it and the script has no other one."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.rules.evaluation.eval_in_train_mode import dropout_call
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import preparing
from tracelyze.testing import SITES


def process_with(make: Any, *lines: tuple[str, int, str, str], **more: Any) -> Process:
    rows = [
        {"site": 20 + n, "role": role, "file": "train.py", "line": line, "function": function, "source": source}
        for n, (role, line, function, source) in enumerate(lines)
    ]
    process: Process = make.process(sites=[*SITES, *rows], **more)
    return process


def number(location: Any) -> int | None:
    return location.line if location is not None else None


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        ([], None),
        ([(12, "freeze")], 12),
        ([(14, "freeze"), (12, "freeze")], 12),
        ([(12, "freeze"), (52, "freeze")], None),
        ([(12, "freeze"), (14, "build")], None),
    ],
)
def test_only_one_place(make: Any, places: list[tuple[int, str]], expected: int | None) -> None:
    lines = [("freeze", line, function, "p.requires_grad = False") for line, function in places]
    assert number(script_lines.only(process_with(make, *lines), "freeze")) == expected


def test_what_cuts_a_graph_apart_from_the_loop_and_the_evaluation(make: Any) -> None:
    inside = ("cut", 12, "forward", "return x.detach()")
    logged = ("cut", 44, "main", "total += loss.detach()")  # the function of the backward
    assert number(script_lines.cut(process_with(make, inside, logged))) == 12
    assert script_lines.cut(process_with(make, logged)) is None
    measured = [("evaluation", 70, "evaluate", "model.eval()"), ("cut", 71, "evaluate", "with torch.no_grad():")]
    assert number(script_lines.cut(process_with(make, inside, *measured))) == 12


def test_a_tensor_that_is_made_anew_beside_the_backward(make: Any) -> None:
    loss = ("anew", 40, "main", "loss = torch.tensor(terms, requires_grad=True).sum()")
    elsewhere = ("anew", 9, "start", "x = torch.tensor([0.0, 1.0], requires_grad=True)")
    beside = ("backward", 44, "main", "loss.backward()")
    assert number(script_lines.made_anew(process_with(make, loss, elsewhere, beside))) == 40
    assert script_lines.made_anew(process_with(make, elsewhere, beside)) is None


def test_the_operation_that_has_a_single_line(make: Any) -> None:
    lines = [
        ("singular", 12, "likelihood", "return -torch.log(p).mean()"),
        ("singular", 22, "forward", "return x / x.sum(1)"),
        ("singular", 25, "scaled", "return x / x.norm()"),
    ]
    event = {"step": 7, "kind": "nonfinite-gradient", "name": "head.weight", "text": "division by 0, log at 0"}
    process = process_with(make, *lines, events=[event])
    assert number(script_lines.singular(process)) == 12, "three lines divide, one takes a logarithm"
    assert number(script_lines.singular(process, 7)) == 12
    assert script_lines.singular(process, 90) is None, "gradients that broke at another time"
    assert script_lines.singular(process_with(make, *lines)) is None


def test_the_validation_set_by_its_name(make: Any) -> None:
    lines = [
        ("data", 12, "build", "train = Images(files, augment=True)"),
        ("data", 13, "build", "val_set = Images(held, augment=True)"),
        ("data", 14, "build", "test_words = Words(held)"),
    ]
    assert number(script_lines.validation_set(process_with(make, *lines), "Images")) == 13
    assert script_lines.validation_set(process_with(make, lines[0]), "Images") is None


def test_the_seed_that_is_given_again_and_again(make: Any) -> None:
    once = ("seed", 12, "<module>", "torch.manual_seed(0)")
    in_a_loop = ("reseed", 22, "<module>", "torch.manual_seed(0)")
    where_it_iterates = ("seed", 35, "main", "set_seed(0)")  # the function of SITES that iterates the loader
    assert number(script_lines.reseeded(process_with(make, once, in_a_loop))) == 22
    assert number(script_lines.reseeded(process_with(make, once, where_it_iterates))) == 35
    made = ("dataloader", 34, "main", "loader = DataLoader(data)")
    assert script_lines.reseeded(process_with(make, once, where_it_iterates, made)) is None, "seeded once, before"


def test_what_makes_batches_without_a_loader(make: Any) -> None:
    loop = ("loop", 33, "main", "for batch in batches(x):")
    maker = ("batches", 12, "batches", "for start in range(0, len(x), 32):")
    assert number(script_lines.batches(process_with(make, loop, maker))) == 12
    assert number(script_lines.batches(process_with(make, loop))) == 33
    assert script_lines.batches(process_with(make)) is None
    for handed, expected in (
        ("yield epoch, x[start:stop], y[start:stop]", 15),
        ("yield x[i * size:(i + 1) * size], y[i * size:(i + 1) * size]", 15),
        ("yield tokens[:, :-1], tokens[:, 1:]", 12),
        ("yield xb, yb", 12),
    ):
        yields = ("yields", 15, maker[2], handed)
        assert number(script_lines.batches(process_with(make, loop, maker, yields))) == expected
    several = [("yields", line, maker[2], "yield x[start:stop]") for line in (15, 17)]
    assert number(script_lines.batches(process_with(make, maker, *several))) == 12


CUT_OFF = {
    "step": 400, "optimizer": 0, "steps": 400, "held": 8, "held_elements": 1000, "missed": 4, "missed_elements": 400,
    "names": "item.first.weight",
}  # fmt: skip
NEW_ROWS = [
    {"parameter": "words.weight", "before": 50, "rows": 56, "trainable": False, "used": 6.0, "unchanged": 6.0}
    | {"step": step, "looked_up": True}
    for step in (0, 10, 100)
]
BROKEN = {"step": 101, "kind": "nonfinite-gradient", "name": "head.weight", "text": "log at 0"}


@pytest.mark.parametrize(
    ("rule", "columns", "tables", "role", "source"),
    [
        ("frozen-parameters", {}, {"reach": [CUT_OFF], "activations": [{"module": "item.first"}]}, "cut", "x.detach()"),
        ("zero-gradients", {"grads_none": [8] * 400}, {}, "cut", "return head(x.numpy())"),
        ("new-tokens-untrained", {}, {"new_rows": NEW_ROWS}, "freeze", "words.requires_grad_(False)"),
        ("loss-nonfinite", {"loss": [0.5] * 100 + [math.inf] * 300}, {"events": [BROKEN]}, "singular", "p.log()"),
        ("debug-mode-left-on", {"anomaly_mode": [True] * 400}, {}, "anomaly", "set_detect_anomaly(True)"),
    ],
)
def test_a_rule_names_the_only_line_and_where_it_was_seen(
    make: Any, rule: str, columns: dict[str, Any], tables: dict[str, Any], role: str, source: str
) -> None:
    def finding(*lines: int) -> Any:
        sites = [
            {"site": 20 + n, "role": role, "file": "train.py", "line": line, "function": f"f{line}", "source": source}
            for n, line in enumerate(lines)
        ]
        more = {name: rows for name, rows in tables.items() if name != "events"}
        process = make.process(
            make.steps() | columns, sites=[*SITES, *sites], events=tables.get("events", []), more=more
        )
        status, reason, found = make.check(rule, process)
        assert status == "fired", reason
        return found

    seen = finding().location
    assert number(finding(12).location) == 12
    assert finding(12).seen_at == seen
    assert finding(12, 80).location == seen, "two such lines: neither is named"


def test_what_an_input_is_divided_by(make: Any) -> None:
    places = [("loop", 30, "main", "for x, y in loader:")]  # whose backward is in line 41
    inside = ("singular", 35, "main", "x = (x - x.mean(0)) / x.std(0)")
    total = ("singular", 49, "main", "print(total / len(loader))")
    helper = ("singular", 12, "scale", "return (x - x.mean(0)) / spread")
    layer = ("singular", 5, "forward", "return x / x.norm(dim=1)")
    divided = preparing.line
    assert number(divided(process_with(make, *places, inside, total, helper))) == 35
    assert number(divided(process_with(make, *places, total, helper, layer))) == 12
    assert number(divided(process_with(make, *places, total, layer))) is None


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("return (load - np.nanmean(reference)) / np.nanstd(reference)", True),
        ("x = (x - np.nanmin(x, 0)) / (np.nanmax(x, 0) - np.nanmin(x, 0))", True),
        ("x = np.nan_to_num((x - np.nanmean(x)) / np.nanstd(x))", False),  # filled
        ("rmse = np.sqrt(np.nanmean((a - b) ** 2))", False),  # a metric
        ("r2 = 1 - np.nanmean((a - b) ** 2) / np.nanvar(b)", False),
        ("x = (x - x.mean(0)) / x.std(0)", False),
    ],
)
def test_statistics_that_pass_over_missing_values(make: Any, source: str, found: bool) -> None:
    place = script_lines.past_missing(process_with(make, ("singular", 30, "standardise", source)))
    assert (place is not None) == found


def test_an_example_of_dropout_is_the_own_line(make: Any) -> None:
    line = "        x = F.dropout(x, p=self.cfg.dropout)"
    site = {"site": 0, "role": "dropout", "file": "train.py", "function": "forward", "line": 15, "source": line.strip(),
            "excerpt": f"    def forward(self, x):\n{line}\n        return x", "excerpt_line": 14}  # fmt: skip
    process = make.process(sites=[site])
    code = dropout_call.example(process, dropout_call.lines(process))
    assert code == "x = F.dropout(x, p=self.cfg.dropout, training=self.training)"


def test_functional_dropout_that_does_not_follow_the_mode(make: Any) -> None:
    module = ("dropout", 12, "forward", "x = self.dropout(x)")
    follows = ("dropout", 13, "forward", "x = F.dropout(x, 0.1, training=self.training)")
    begins = ("dropout", 14, "forward", "x = F.dropout(x,")
    drops = ("dropout", 15, "forward", "x = F.dropout(x, 0.5)")
    attends = ("dropout", 9, "forward", "y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)")
    process = process_with(make, module, follows, begins, drops)
    found = dropout_call.lines(process)
    assert [one.line for one in found] == [15]
    process = process_with(make, drops, attends)
    found = dropout_call.lines(process)
    assert dropout_call.said(found) == " Lines 9 and 15 drop in each mode."
    assert dropout_call.said([]) == ""
    assert dropout_call.by_mode(process_with(make, module), []) is None


@pytest.mark.parametrize(
    ("part", "made", "by_mode"),
    [
        ("blocks.0.qkv", "self.qkv = nn.Linear(8, 24)", True),
        ("blocks.0.qkv", "self.norm, self.qkv = nn.LayerNorm(8), nn.Linear(8, 24)", True),
        ("blocks.0.other", "self.other = nn.Linear(8, 24)", False),
        ("", "self.qkv = Model()", False),  # holds a model, and may be none
        ("0", "self.qkv = nn.Linear(8, 24)", False),
    ],
)
def test_a_method_that_forward_calls_knows_the_mode_of_its_module(
    make: Any, part: str, made: str, by_mode: bool
) -> None:
    text = "def attend(self, x):\n        q, k, v = self.qkv(x)\n        y = attention(q, dropout_p=self.rate)"
    row = {"file": "m.py", "function": "attend", "excerpt": text, "excerpt_line": 30}
    drops = row | {"site": 1, "role": "dropout", "line": 32, "source": "y = attention(q, dropout_p=self.rate)"}
    drops |= {key: value.replace("attention(", "F.scaled_dot_product_attention(q, k, ")
              for key, value in drops.items() if key in ("source", "excerpt")}  # fmt: skip
    built = {"site": 2, "role": "module", "file": "m.py", "line": 12, "function": "__init__", "source": made}
    modules = [{"model": 0, "module": part, "kind": "Linear", "made_at": 2}]
    process = make.process(sites=[drops, built], more={"modules": modules})
    edit = dropout_call.by_mode(process, dropout_call.lines(process))
    assert (edit is not None) is by_mode
    if edit is not None:
        assert "dropout_p=self.rate if self.training else 0.0" in edit.added[0]


def test_all_calls_of_dropout_that_stand_together_follow_the_mode(make: Any) -> None:
    lines = ["        x = F.dropout(x, 0.6)", "        x = F.relu(self.first(x))", "        x = F.dropout(x, p=0.5)"]
    text = {"file": "model.py", "function": "forward", "excerpt": "\n".join(lines), "excerpt_line": 20}
    calls = [text | {"site": at, "role": "dropout", "line": at, "source": lines[at - 20].strip()} for at in (20, 22)]

    def edited(*more: dict[str, Any]) -> Any:
        process = make.process(sites=[*calls, *more])
        return dropout_call.by_mode(process, dropout_call.lines(process))

    diff = edited()
    assert (diff.line, diff.removed) == (20, lines)
    mode = "training=self.training)"
    assert diff.added == [f"{lines[0][:-1]}, {mode}", lines[1], f"{lines[2][:-1]}, {mode}"]
    helper = {"file": "model.py", "function": "drop", "excerpt_line": 4, "site": 5, "role": "dropout", "line": 5}
    helper |= {"excerpt": "def drop(x, p):\n    return F.dropout(x, p)", "source": "return F.dropout(x, p)"}
    process = make.process(sites=[helper])
    example = dropout_call.example(process, dropout_call.lines(process))
    handed = "def drop(x, p, training):  # forward hands it self.training"
    assert example == f"{handed}\n    return F.dropout(x, p, training=training)"
    assert dropout_call.example(process, []) == dropout_call.EXAMPLE
    far = calls[1] | {"site": 60, "line": 60, "excerpt_line": 58}
    assert edited(far).removed == lines[:1], "lines far apart are no single edit"


def test_what_puts_a_model_into_eval_mode(make: Any) -> None:
    once = ("eval-mode", 30, "accuracy", "model.eval()")
    assert number(script_lines.into_eval_mode(process_with(make, once))) == 30
    assert script_lines.into_eval_mode(process_with(make, once, ("eval-mode", 60, "test", "net.eval()"))) is None
    assert script_lines.into_eval_mode(process_with(make, ("eval-mode", 30, "score", "pd.eval(text)"))) is None


def test_a_function_that_normalises_whatever_the_mode(make: Any) -> None:
    always = ("batch-norm", 20, "forward", "h = F.batch_norm(h, self.m, self.v, training=True)")
    follows = ("batch-norm", 20, "forward", "h = F.batch_norm(h, self.m, self.v, training=self.training)")
    assert number(script_lines.always_normalising(process_with(make, always))) == 20
    assert script_lines.always_normalising(process_with(make, follows)) is None


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("True, self.momentum", 21),
        ("momentum=0.1, training=True", 21),
        ("self.training, self.momentum", None),
        ("training=self.training", None),
        ("self.training or self.running_mean is None, 0.1", None),
        ("momentum=0.1", None),
    ],
)
def test_a_normalisation_of_several_lines_whatever_the_mode(make: Any, mode: str, line: int | None) -> None:
    text = f"h = F.batch_norm(\n    x, self.m, self.v, self.w, self.b,\n    {mode},\n)"
    row = {"site": 1, "role": "batch-norm", "file": "m.py", "line": 21, "function": "forward", "excerpt_line": 20}
    row |= {"source": "h = F.batch_norm(", "excerpt": f"def forward(self, x):\n{text}"}
    place = script_lines.always_normalising(make.process(sites=[row]))
    assert (place and place.line) == line


@pytest.mark.parametrize(
    ("source", "function", "line"),
    [
        ("loss = torch.tensor(float(focal.mean()), requires_grad=True)", "compute_loss", 59),
        ("return torch.tensor(values, requires_grad=True)", "compute_loss", 59),
        ("noise = torch.tensor(values, requires_grad=True)", "compute_loss", None),  # an input that is varied
        ("loss = torch.tensor(values, requires_grad=True)", "report", None),
    ],
)
def test_a_loss_made_of_numbers_where_a_framework_calls_backward(
    make: Any, source: str, function: str, line: int | None
) -> None:
    call = ("training-call", 54, "compute_loss", "outputs = model(**inputs)")
    assert number(script_lines.made_anew(process_with(make, call, ("anew", 59, function, source)))) == line


@pytest.mark.parametrize(
    ("source", "names", "line"),
    [
        ("model.head = nn.Linear(model.dim, 5)", ["head.weight", "head.bias"], 12),
        ("model.net.head = nn.Sequential(", ["net.head.0.weight", "net.head.0.bias"], 12),
        ("model.head = nn.Linear(model.dim, 5)", ["head.weight", "neck.weight"], None),
        ("model.dim = Width(5)", ["head.weight"], None),
    ],
)
def test_a_part_that_was_put_in(make: Any, source: str, names: list[str], line: int | None) -> None:
    assert number(script_lines.replaced(process_with(make, ("part-text", 12, "main", source)), names)) == line
