"""input-normalization: raw values that reach the first layer, and those that something normalises before it does."""

from __future__ import annotations

from typing import Any

import pytest

RAW = {"dtype": "float32", "mean": 120.0, "std": 64.0, "min": 0.0, "max": 255.0}
PLAIN = {"dtype": "float32", "mean": 0.0, "std": 1.0, "min": -3.5, "max": 3.4}
LABEL = {"dtype": "int64", "mean": 450.0, "std": 290.0, "min": 0.0, "max": 999.0, "field": "1"}
Row = dict[str, Any]


def batches(*fields: Row, count: int = 10, trained: bool | None = True) -> list[Row]:
    """Looks at batches with these fields; the first is called 0."""
    known = {"loader": 0, "epoch": 0, "trained": trained, "shape": "32x8", "nonfinite": False, "field": "0"}
    return [known | {"step": step, "batch": step, "time": 0.05 * step} | one for step in range(count) for one in fields]


def forward(*modules: tuple[str, str, float], step: int = 1) -> list[Row]:
    """One training forward: names, kinds and the scale of what they put out."""
    return [
        {
            "time": 0.05 * step + 1e-4 * order,
            "step": step,
            "alert": False,
            "order": order,
            "module": name,
            "kind": kind,
            "mean": 0.0,
            "std": scale,
            "nonfinite": 0,
        }
        for order, (name, kind, scale) in enumerate((*modules, ("", "Net", modules[-1][2])), 1)
    ]


MLP = (("0", "Flatten", 136.0), ("1", "Linear", 78.0), ("2", "ReLU", 55.0), ("3", "Linear", 31.0))


def judge(make: Any, rows: list[Row], looks: list[Row], **more: Any) -> Any:
    given = {"batches": rows, "activations": looks, **more.pop("tables", {})}
    return make.check("input-normalization", make.process(more=given, **more))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, "0.47 is subtracted and they are divided by 0.22"),
        ({"min": -0.4242, "max": 827.2, "shape": "32x1x28x28"}, "0.13 is subtracted and they are divided by 0.31"),
        ({"min": -1.0, "max": 509.0, "shape": "32x64x64x3"}, "0.50 is subtracted and they are divided by 0.50"),
        ({"shape": "32x8"}, ""),  # a table
        ({"min": -900.0}, ""),
        ({"max": 90.0}, ""),
    ],
)
def test_pixels_that_are_not_divided_before_their_mean_is_subtracted(make, change: Row, told: str) -> None:
    imagenet = {"mean": 510.0, "std": 275.0, "min": -2.1179, "max": 1136.36, "shape": "32x3x28x28"}
    rows = batches({**RAW, **imagenet, **change}, LABEL)
    _, _, finding = judge(make, rows, forward(*MLP))
    assert told in finding.summary
    assert finding.fix.startswith("Divide the pixels by 255") == bool(told)


def test_raw_pixels(make) -> None:
    status, _, finding = judge(make, batches(RAW, LABEL), forward(*MLP))
    assert (status, finding.severity, finding.confidence, finding.location.line) == ("fired", "warning", "likely", 30)
    assert "0 to 255" in finding.title
    assert "1 (Linear)" in finding.summary
    assert "255" in finding.fix_code
    assert judge(make, batches(RAW | {"dtype": "uint8"}, LABEL), forward(*MLP))[0] == "fired"


def test_raw_values_that_saturate_a_tanh(make) -> None:
    """Behind it everything is small: that is no normalisation."""
    for squashing in (("2", "Tanh", 0.98), ("Sigmoid after 1", "Sigmoid", 0.7)):
        status, _, finding = judge(make, batches(RAW, LABEL), forward(*MLP[:2], squashing, ("3", "Linear", 0.5)))
        assert (status, finding.confidence) == ("fired", "likely")
        assert "saturate the tanh" in finding.summary
        assert not [one for one in finding.evidence if "layer after it" in one.name]
    norm = ("2", "Dropout", 78.0), ("n", "LayerNorm", 1.0), ("3", "Linear", 0.5)
    assert judge(make, batches(RAW, LABEL), forward(*MLP[:2], *norm))[0] == "passed"


def test_raw_features(make) -> None:
    raw = RAW | {"mean": 1013.0, "std": 9.0, "min": 960.0, "max": 1050.0}
    finding = judge(make, batches(raw), forward(("0", "Linear", 600.0)))[2]
    assert "x_train.mean(0)" in finding.fix_code
    overflown = [row | {"nonfinite": 2, "std": float("nan")} for row in forward(*MLP)]  # float16
    assert judge(make, batches(raw), overflown)[0] == "fired"


@pytest.mark.parametrize(
    ("rows", "modules"),
    [
        (batches(PLAIN), MLP),
        (batches(RAW | {"mean": 0.4, "std": 4.0}), MLP),  # counts of words: nearly all of them zero
        (batches(RAW | {"mean": 0.1, "std": 0.3, "max": 1.0}), MLP),  # one-hot, masks
        (batches(RAW), (("0", "Conv2d", 0.5), ("1", "ReLU", 0.4), ("2", "Linear", 0.3))),  # divided in the loop
        (batches(RAW), (("0", "BatchNorm1d", 1.0), ("1", "Linear", 0.6))),
        (batches(RAW), (("0", "Conv2d", 78.0), ("1", "BatchNorm2d", 1.0), ("2", "ReLU", 0.7), ("3", "Linear", 0.4))),
        (batches(RAW), (("0", "Linear", 78.0), ("1", "ReLU", 55.0), ("2", "LayerNorm", 1.0), ("3", "Linear", 0.4))),
        (batches(RAW), (("scale", "Standardise", 1.0), ("1", "Linear", 0.6))),  # a module of the script's own
        (batches(RAW), (("0", "Linear", 78.0), ("1", "Linear", 0.5))),  # a function normalises in between
        (batches(RAW), (("time", "Linear", 320.0), ("mix", "Linear", 0.5))),  # the sine of a time step
        (batches(RAW), (("table", "Embedding", 1.0), ("mix", "Linear", 0.5))),  # identifiers kept as floats
        (batches(PLAIN, RAW | {"field": "1"}), (("0", "Linear", 0.6), ("1", "Linear", 0.3))),  # prices to be predicted
        (batches(RAW | {"field": "target"}, PLAIN | {"field": "x"}), MLP),
    ],
)
def test_inputs_that_are_fine_where_they_arrive(make, rows, modules) -> None:
    assert judge(make, rows, forward(*modules))[0] == "passed"


def test_weights_that_were_made_for_raw_values(make) -> None:
    loaded = {"loads": [{"step": 0, "module": 1, "name": "VGG", "time": 0.0}]}
    assert "weights were loaded" in judge(make, batches(RAW), forward(*MLP), tables=loaded)[1]
    assert judge(make, batches(RAW), forward(*MLP), tables={"loads": [{"step": 50, "time": 2.5}]})[0] == "fired"
    lbfgs = [{"optimizer": 0, "name": "LBFGS", "device": "cpu"}]
    assert judge(make, batches(RAW), forward(*MLP), optimizers=lbfgs)[0] == "passed"


def test_what_cannot_be_told(make) -> None:
    assert "Too few batches" in judge(make, batches(RAW, count=2), forward(*MLP))[1]
    assert "Too few batches" in judge(make, batches(RAW, trained=False), forward(*MLP))[1]
    assert "Too few batches" in judge(make, batches(LABEL), forward(*MLP))[1]  # tokens, say
    some = [row for row in forward(*MLP) if row["order"] > 1]
    assert "was not looked at" in judge(make, batches(RAW), some)[1]
    assert judge(make, batches(RAW), [])[0] == "skipped"
    two = make.steps() | {"optimizer": [0, 1] * 200}
    assert "Several optimizers" in judge(make, batches(RAW), forward(*MLP), steps=two)[1]


def test_the_line_that_draws_batches_where_no_loader_does(make) -> None:
    lines = [
        ("split", 27, "stream", "for ix in torch.randperm(len(x)).split(bs):"),
        ("backward", 43, "m", "backward()"),
    ]
    sites = [
        {"site": at, "role": role, "file": "t.py", "line": line, "function": function, "source": source}
        for at, (role, line, function, source) in enumerate(lines)
    ]
    process = make.process(sites=sites, loaders=[], more={"batches": batches(RAW), "activations": forward(*MLP)})
    finding = make.check("input-normalization", process)[2]
    assert finding.location.line == 27
    assert "Input 0 of the model" in finding.summary


def test_a_table_is_called_the_inputs_and_not_a_column(make: Any) -> None:
    finding = judge(make, batches(RAW | {"min": -900.0}, LABEL), forward(*MLP))[2]
    assert finding.title == "Inputs are not normalised: mean 120, deviation 64 over all columns"
    assert finding.summary.startswith("The inputs (field 0 of the batches), all columns together, ran from -900 to 255")


@pytest.mark.parametrize(
    ("made", "dataset", "line"),
    [
        ("data = TensorDataset(x, y)", "Subset", 8),
        ("data = TensorDataset(x, y)", "Table", 30),  # a class of the script's own
        ("data = Table(x, y)", "Subset", 30),
    ],
)
def test_inputs_that_a_tensor_dataset_is_given(make: Any, made: str, dataset: str, line: int) -> None:
    main = {"file": "t.py", "function": "main"}
    sites = [
        main | {"site": 1, "role": "data", "line": 8, "source": made, "excerpt": f"    {made}", "excerpt_line": 8},
        main | {"site": 2, "role": "loader", "line": 30, "source": "for xb, yb in loader:"},
    ]
    loader = {"loader": 0, "dataset": dataset, "length": 50, "batch_size": 32}
    steps = make.steps() | {"loader": [0] * 400}
    process = make.process(
        steps,
        sites=sites,
        loaders=[loader],
        more={"batches": batches(RAW | {"min": -900.0}, LABEL), "activations": forward(*MLP)},
    )
    finding = make.check("input-normalization", process)[2]
    assert finding.location.line == line
    assert ("x = (x - mean) / (std + 1e-8)" in finding.fix_code and "above line 8" in finding.fix_code) is (line == 8)
