"""samples-mixed without a probe: the sizes of what recurrences and attention are given, and layouts that are right."""

from __future__ import annotations

from typing import Any

import pytest

MIXED = "samples-mixed"
LOADER = {"loader": 0, "iterable": False, "shuffled": True, "batch_size": 64, "sampler": "RandomSampler"}
LAYER = "layer = nn.TransformerEncoderLayer(width, 4)"


def forwards(kind: str, *sizes: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    """Rows of a layer that took the first of each pair of sizes for positions, the second for samples."""
    return [
        {"step": 10 * at, "order": 1, "module": "mix", "kind": kind, "positions_first": True, **more}
        | {"positions": positions, "rows": rows}
        for at, (positions, rows) in enumerate(sizes)
    ]


def trained(
    make: Any,
    rows: list[dict[str, Any]],
    loader: dict[str, Any] | None = None,
    batches: list[dict[str, Any]] | None = None,
    **steps: Any,
) -> Any:
    columns = make.steps() | {"loader": [0] * 400, "loader_batches": [1] * 400, "model_calls": [1] * 400}
    columns |= {"batch_size": [64] * 400, **steps}
    lines = [{"site": 70, "role": "module", "file": "m.py", "line": 13, "function": "__init__"}]
    lines[0] |= {"source": "self.mix = nn.TransformerEncoder(layer, 2)", "excerpt_line": 12}
    lines[0] |= {"excerpt": f"        {LAYER}\n        {lines[0]['source']}"}
    made = [{"model": 0, "module": "mix", "made_at": 70}]
    more = {"activations": rows, "loaders": [LOADER | (loader or {})], "modules": made, "batches": batches or []}
    return make.process(columns, sites=lines, more=more)


def test_a_layer_that_is_given_its_samples_first(make: Any) -> None:
    rows = forwards("TransformerEncoderLayer", *[(64, 17)] * 3)
    status, _, finding = make.check(MIXED, trained(make, rows))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert "was given [64, 17, …] in each of the 3 forwards looked at: made without batch_first=True" in finding.summary
    assert (finding.location.line, finding.diff.added) == (12, [f"        {LAYER[:-1]}, batch_first=True)"])


def test_an_attention_within_a_layer_of_torch_is_told_as_the_layer(make: Any) -> None:
    inner = forwards("MultiheadAttention", *[(64, 17)] * 3, module="mix.self_attn")
    finding = make.check(MIXED, trained(make, inner + forwards("TransformerEncoderLayer", *[(64, 17)] * 3)))[2]
    assert finding.title == "mix (TransformerEncoderLayer) takes the 64 samples of a batch for positions"
    assert "further layer" not in finding.summary


def test_a_title_has_room_for_what_a_layer_of_a_long_name_does(make: Any) -> None:
    rows = forwards("TransformerEncoderLayer", *[(64, 17)] * 3, module="model.encoder.layers.0")
    finding = make.check(MIXED, trained(make, rows))[2]
    assert finding.title == "model.encoder.layers.0 takes the 64 samples of a batch for positions"
    assert finding.summary.startswith("model.encoder.layers.0 (TransformerEncoderLayer) was given")


def test_a_recurrence_that_is_given_its_positions_first(make: Any) -> None:
    """As many positions as samples: that the input is a view of images, samples first, tells them apart."""
    rows = forwards("LSTM", *[(64, 64)] * 3, positions_first=False, positions_outermost=True)
    unknown = forwards("LSTM", *[(64, 64)] * 3, positions_first=False, module="next")
    finding = make.check(MIXED, trained(make, rows + unknown))[2]
    assert "made with batch_first=True, it takes the second dimension" in finding.summary
    assert finding.fix_code.endswith("nn.LSTM(input_size, hidden_size, batch_first=False)")
    assert finding.diff is None, "what reads the output may expect the other layout"
    assert make.check(MIXED, trained(make, unknown))[0] == "skipped"


def test_batches_of_other_sizes_tell_samples_where_positions_vary(make: Any) -> None:
    rows = forwards("GRU", (64, 17), (64, 21), (64, 9))
    assert make.check(MIXED, trained(make, rows))[0] == "skipped", "64 may be a number of positions"
    rows[2]["positions"] = 40
    sizes = [64] * 20 + [40] + [64] * 379
    assert make.check(MIXED, trained(make, rows, batch_size=sizes))[0] == "fired"


def test_several_batches_of_a_step(make: Any) -> None:
    rows = forwards("GRU", *[(16, 9)] * 3)
    shared: dict[str, Any] = {"batch_size": [64] * 400, "loader_batches": [4] * 400}
    assert make.check(MIXED, trained(make, rows, model_calls=[4] * 400, **shared))[0] == "fired"
    parts = forwards("GRU", *[(64, 16)] * 3)  # 64 positions, and a quarter of the batch in each call
    assert make.check(MIXED, trained(make, parts, model_calls=[4] * 400))[0] == "skipped"


@pytest.mark.parametrize(("links", "status"), [((0, 1), "fired"), ((0,), "skipped")])
def test_models_that_are_called_in_turn(make: Any, links: tuple[int, ...], status: str) -> None:
    """An encoder and a recurrence behind it, each called once; what one model is given twice may be parts."""
    run = trained(make, forwards("LSTM", *[(64, 17)] * 3), model_calls=[2] * 400)
    rows = [{"optimizer": 0, "model": one} for one in links]
    run.tables["links"] = make.process(more={"links": rows}).tables["links"]
    assert make.check(MIXED, run)[0] == status


@pytest.mark.parametrize(
    ("rows", "loader"),
    [
        (forwards("GRU", *[(17, 64)] * 3), {}),
        (forwards("GRU", *[(64, 64)] * 3), {}),
        (forwards("GRU", *[(64, 128)] * 3), {}),  # two views of each sample
        (forwards("GRU", *[(64, 1)] * 3), {}),  # the batch is one set on purpose
        (forwards("GRU", *[(64, 64)] * 3, positions_outermost=False), {}),
        (forwards("GRU", *[(64, 17)] * 2), {}),
        (forwards("GRU", *[(64, 17)] * 3), {"shuffled": False}),  # steps of one series
        (forwards("GRU", *[(64, 17)] * 3), {"iterable": True}),
        (forwards("GRU", *[(64, 17)] * 3) + forwards("GRU", (17, 64), module="other"), {}),  # one of two, on purpose
        (forwards("GRU", *[(30, 17)] * 3), {}),
    ],
)
def test_layouts_that_are_right_or_not_known(make: Any, rows: list[dict[str, Any]], loader: dict[str, Any]) -> None:
    assert make.check(MIXED, trained(make, rows, loader))[0] == "skipped"


@pytest.mark.parametrize(("singly", "fires"), [(True, True), (False, False)])
def test_samples_that_the_script_draws_by_itself(make: Any, singly: bool, fires: bool) -> None:
    """Without a loader, what comes again one by one lies along the dimension of the samples; steps of series do not."""
    batches = []
    for at in range(8):
        ids = [(at + 1) * one % 67 for one in range(1, 65)] if singly else [at % 2 * 64 + one for one in range(64)]
        row = {"step": 10 * at, "loader": None, "trained": True, "field": "0", "dtype": "float32", "batch": at}
        batches.append(row | {"shape": "64x17x6", "print": f"p{at}", "prints": " ".join(f"s{one}" for one in ids)})
    rows = forwards("LSTM", *[(64, 17)] * 3)
    run = trained(make, rows, batches=batches, loader_batches=[0] * 400)
    run.optimizations[0].steps["loader"][:] = float("nan")
    status, _, finding = make.check(MIXED, run)
    assert (status == "fired") is fires
    if fires:
        assert "there lie the 64 samples that the script drew in another order each time" in finding.summary
