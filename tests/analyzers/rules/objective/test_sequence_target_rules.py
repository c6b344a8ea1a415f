"""Targets of sequence models: not shifted, or padding that counts; their look-alikes, and what cannot be told."""

from __future__ import annotations

import math
from typing import Any

import pytest

COPY, PADDING = "target-in-input", "padding-in-loss"
COPIED = {"ids_compared": 600.0, "ids_equal": 1.0, "sees_later": 0.0}
LEAKING = {"ids_compared": 600.0, "ids_equal": 0.0, "sees_later": 0.4, "next_targets": 700.0, "sees_next": 1.0}
MASKED = LEAKING | {"sees_later": 0.0, "sees_next": 0.0}
SHIFTED = COPIED | {"ids_equal": 0.0}
PADDED = {"pad_share": 0.4, "pad_rows": 0.9, "pad_target": 0.0, "pad_same": 1.0}
FULL = PADDED | {"pad_share": 0.0, "pad_rows": 0.0}


def calls(count: int = 9, **columns: Any) -> list[dict[str, Any]]:
    """Calls of cross_entropy on the scores of a language model, of shifted targets without padding."""
    row = {
        "function": "cross_entropy",
        "site": 3,
        "training": True,
        "reduction": "mean",
        "input_shape": "768x50",
        "target_shape": "768",
        "target_integer": True,
        "made_by": "Addmm",
        "value": 1.2,
    }
    return [{**row, **SHIFTED, **FULL, "step": index, **columns} for index in range(count)]


NOT_WALKED = calls(20, **dict.fromkeys((*COPIED, *PADDED)))  # looked at, when the graph was not walked any more


@pytest.mark.parametrize(
    ("rule", "rows", "severity"),
    [
        (COPY, calls(**COPIED), "critical"),
        (COPY, [*calls(**COPIED), *NOT_WALKED], "critical"),
        (COPY, [*calls(**COPIED), *calls(2, **COPIED | {"ids_compared": 3.0, "ids_equal": 0.0})], "critical"),
        (COPY, calls(**COPIED, **PADDED), "critical"),
        (COPY, calls(**LEAKING), "critical"),
        (COPY, calls(**LEAKING | {"sees_next": 0.95}), "critical"),  # padding behind the last token counts
        (COPY, [*calls(**LEAKING), *NOT_WALKED], "critical"),
        (PADDING, calls(**PADDED), "warning"),
        (PADDING, [*calls(**PADDED), *NOT_WALKED], "warning"),
        (PADDING, [*calls(7, **PADDED | {"pad_share": 0.6}), *calls(2)], "warning"),
    ],
)
def test_the_fault_is_found(make, rule: str, rows: list[dict[str, Any]], severity: str) -> None:
    status, reason, finding = make.check(rule, make.process(more={"loss_calls": rows}))
    assert status == "fired", reason
    assert (finding.severity, finding.location.line, finding.first_step) == (severity, 60, 1)
    assert finding.fix_code


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        (COPY, calls()),
        (COPY, calls(**COPIED | {"ids_equal": 0.97})),  # denoising
        (COPY, [*calls(5), *calls(4, **COPIED)]),  # several models at one line
        (COPY, calls(**MASKED)),
        (COPY, calls(**MASKED | {"sees_next": 0.6})),  # a long prefix that sees itself, and counts
        (COPY, [*calls(5, **MASKED), *calls(4, **LEAKING)]),  # several models at one line
        (PADDING, calls()),
        (PADDING, calls(**PADDED | {"pad_share": 0.0})),  # ignored, or of weight zero
        (PADDING, calls(**PADDED | {"pad_same": 0.9})),  # real targets at the ends
        (PADDING, calls(**PADDED | {"pad_share": 0.1})),
        (PADDING, calls(**PADDED | {"pad_rows": 0.3, "pad_share": 0.25})),  # a few very short ones
        (PADDING, [row | {"pad_target": float(index)} for index, row in enumerate(calls(**PADDED))]),
        (PADDING, calls(2, **PADDED)),
    ],
)
def test_the_look_alike_is_not(make, rule: str, rows: list[dict[str, Any]]) -> None:
    assert make.check(rule, make.process(more={"loss_calls": rows}))[0] == "passed"


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        (COPY, calls(**COPIED | {"sees_later": 0.4})),  # sees both sides: autoencoders, copying
        (COPY, calls(**COPIED | {"sees_later": math.nan})),  # shifts its input itself, or nobody knows
        (COPY, calls(**COPIED | {"ids_compared": 4.0})),
        (COPY, NOT_WALKED + [row | {"site": 4} for row in calls(1, **COPIED | {"sees_later": None})]),
        (COPY, calls(**LEAKING | {"next_targets": 0.0, "sees_next": math.nan})),  # the targets are other ids
        (COPY, calls(2, **LEAKING)),
        (COPY, calls(**LEAKING | {"next_targets": 9.0})),
        (PADDING, [*NOT_WALKED, *calls(3, function="mse_loss", **PADDED)]),
    ],
)
def test_what_cannot_be_told_is_skipped(make, rule: str, rows: list[dict[str, Any]]) -> None:
    status, reason, _ = make.check(rule, make.process(more={"loss_calls": rows}))
    assert status == "skipped"
    assert reason


@pytest.mark.parametrize("rule", [COPY, PADDING])
def test_runs_without_the_columns_are_skipped(make, rule: str) -> None:
    assert make.check(rule, make.process())[0] == "skipped"


def test_padding_is_counted_from_below(make) -> None:
    """The first target behind a row may be its end symbol, which counts as it should: no share is exact."""
    rows = calls(**PADDED | {"pad_share": 0.538})
    _, _, finding = make.check(PADDING, make.process(more={"loss_calls": rows}))
    assert "at least 53% of the targets" in finding.title
    assert "at least 53% of its targets in 9 calls that were looked at" in finding.summary


@pytest.mark.parametrize(
    ("source", "told", "elsewhere", "line", "example"),
    [
        ("ce = nn.CrossEntropyLoss(ignore_index=cfg.pad)", -1.0, 0.0, 20, "ce = nn.CrossEntropyLoss(ignore_index=0)"),
        ("ce = nn.CrossEntropyLoss(ignore_index=-1)", -1.0, 0.0, 20, "ce = nn.CrossEntropyLoss(ignore_index=0)"),
        ("ce = nn.CrossEntropyLoss(ignore_index=7)", -1.0, 0.0, 60, "labels.masked_fill(labels == 0, -1)"),
        ("ce = nn.CrossEntropyLoss(ignore_index=PAD)", -100.0, 0.0, 60, "labels.masked_fill(labels == 0, -100)"),
        ("ce = nn.CrossEntropyLoss(ignore_index=cfg.pad)", -1.0, 9.0, 60, "masked_fill(input_ids == pad_id, -1)"),
        ("ce = nn.CrossEntropyLoss(ignore_index=cfg.pad)", None, None, 60, "masked_fill(input_ids == pad_id, -100)"),
    ],
)
def test_padding_gets_the_number_that_the_loss_ignores(
    make, source: str, told: float, elsewhere: float, line: int, example: str
) -> None:
    """Or the loss ignores what padding has, where no real token has that: -1 in its place is out of range."""
    loss = {"site": 3, "role": "loss", "file": "train.py", "line": 60, "function": "main", "source": "loss = ce(a, b)"}
    rows = calls(**PADDED, ignore_index=told, pad_elsewhere=elsewhere)
    process = make.process(sites=[*attends("setting", source), loss], more={"loss_calls": rows})
    finding = make.check(PADDING, process)[2]
    assert finding.location.line == line
    assert example in finding.fix_code
    assert ("here" in finding.fix) is (told is not None)


def test_two_calls_tell_nothing(make) -> None:
    assert make.check(COPY, make.process(more={"loss_calls": calls(2, **COPIED)}))[0] == "skipped"


def table(function: str = "cross_entropy", **columns: Any) -> list[dict[str, Any]]:
    """Calls of a loss with one target for each sample of a table, whose last column is the label."""
    row = {
        "function": function, "site": 3, "training": True, "reduction": "mean", "input_shape": "32x2",
        "target_shape": "32", "column_rows": 32.0, "columns": 10.0, "column": 9.0, "column_same": 1.0,
        "column_other": 0.3,
    }  # fmt: skip
    return [{**row, "step": index, **columns} for index in range(9)]


@pytest.mark.parametrize(
    "rows",
    [
        table(),
        table("binary_cross_entropy_with_logits"),
        table("mse_loss", column_other=0.9),
        table("written out", column_other=0.9),
    ],
)
def test_a_label_that_is_an_input(make, rows: list[dict[str, Any]]) -> None:
    status, reason, finding = make.check(COPY, make.process(more={"loss_calls": rows}))
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.location.line) == ("critical", "likely", 60)
    assert "One of the model's 10 inputs" in finding.title


@pytest.mark.parametrize(
    "rows",
    [
        table(column_same=0.97),  # a feature that foretells the class
        [*table(), *table(column_same=0.999)],
        table(column_rows=16.0),  # 144 samples: a feature that is right in 98% may be right in all
        table("mse_loss", column_other=0.4),  # a number to be copied, among others that have nothing to do with it
        table("mse_loss", column_other=0.9, column_rows=16.0, columns=150.0),  # as like as chance makes one of so many
    ],
)
def test_an_input_that_may_be_the_target(make, rows: list[dict[str, Any]]) -> None:
    assert make.check(COPY, make.process(more={"loss_calls": rows}))[0] == "passed"


def attends(role: str, *lines: str, function: str = "forward") -> list[dict[str, Any]]:
    place = {"role": role, "file": "model.py", "function": function}
    return [
        {**place, "site": 70 + n, "line": 20 + n, "source": line, "excerpt": line, "excerpt_line": 20 + n}
        for n, line in enumerate(lines)
    ]


PLAIN = "h = self.body(h)"
ENCODER = [{"model": 0, "module": "body", "kind": "TransformerEncoder", "made_at": None}]


@pytest.mark.parametrize(
    ("sites", "line", "example"),
    [
        (attends("attending-layer", PLAIN), 20, "h = self.body(h, mask=mask, is_causal=True)"),
        (
            attends("attending-layer", "return self.head(self.body(x, mask=causal))", PLAIN),
            21,  # the other one has a mask
            "h = self.body(h, mask=mask, is_causal=True)",
        ),
        (
            attends("dropout", "y = F.scaled_dot_product_attention(q, k, v)"),
            20,
            "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ),
        (attends("attention", "w = (q @ k.mT / d).softmax(-1)"), 20, "masked_fill"),
        (
            attends("attending-layer", "h = self.body(h, src_key_padding_mask=pad)"),
            20,
            "h = self.body(h, src_key_padding_mask=pad, mask=mask, is_causal=True)",
        ),
        (attends("attending-layer", "for layer in self.body:"), 20, "encoder(x, mask=mask"),
        (attends("attending-layer", "h = self.body(h, mask=mask)"), 60, "encoder(x, mask=mask"),
        (attends("dropout", "y = F.dropout(q, 0.1)"), 60, "encoder(x, mask=mask"),
        ([*attends("attending-layer", PLAIN), *attends("attention", "a = b.softmax(-1)", function="mix")], 60, "or: F"),
    ],
)
def test_attention_without_a_mask_is_the_line_to_change(make, sites: Any, line: int, example: str) -> None:
    """Where no single line of the script attends, the loss is named, as before."""
    loss = {"site": 3, "role": "loss", "file": "train.py", "line": 60, "function": "main", "source": "loss = ce(a, b)"}
    process = make.process(sites=[*sites, loss], more={"loss_calls": calls(**LEAKING), "modules": ENCODER})
    finding = make.check(COPY, process)[2]
    assert finding.location.line == line
    assert example in finding.fix_code


def test_a_decoder_that_is_called_over_several_lines_shows_its_own_call(make) -> None:
    call = "h = self.body(h, memory,\n              tgt_key_padding_mask=(t == 0))"
    sites = [one | {"excerpt": call} for one in attends("attending-layer", "h = self.body(h, memory,")]

    def example(kind: str) -> str:
        modules = [{"model": 0, "module": "body", "kind": kind, "made_at": None}]
        process = make.process(sites=sites, more={"loss_calls": calls(**LEAKING), "modules": modules})
        return str(make.check(COPY, process)[2].fix_code)

    assert example("TransformerDecoder").endswith(f"{call[:-1]}, tgt_mask=mask, tgt_is_causal=True)")
    assert "h = encoder(x, mask=mask" in example("Mixer"), "a layer of one's own"


@pytest.mark.parametrize("told", ["batch_first=True", "batch_first=False", ""])
def test_a_layer_that_is_batch_first_needs_no_note_of_its_sizes(make, told: str) -> None:
    made = {"site": 7, "role": "setting", "file": "train.py", "line": 9, "function": "__init__"}
    made |= {"source": f"layer = nn.TransformerEncoderLayer(48, 4, {told})"}
    made |= {"excerpt": made["source"], "excerpt_line": 9}
    sites = [*attends("attending-layer", "h = self.body(h)"), made]
    process = make.process(sites=sites, more={"loss_calls": calls(**LEAKING), "modules": ENCODER})
    example = make.check(COPY, process)[2].fix_code
    assert "h = self.body(h, mask=mask, is_causal=True)" in example
    assert ("size(0) without batch_first" in example) == (told != "batch_first=True")


def test_batch_first_of_an_lstm_says_nothing_of_the_layer_that_attends(make) -> None:
    made = {"site": 7, "role": "setting", "file": "train.py", "line": 9, "function": "__init__", "excerpt_line": 9}
    made |= {"source": "layer = nn.TransformerEncoderLayer(48, 4)"}
    made |= {"excerpt": f"{made['source']}\nself.reader = nn.LSTM(48, 48, batch_first=True)"}
    sites = [*attends("attending-layer", "h = self.body(h)"), made]
    process = make.process(sites=sites, more={"loss_calls": calls(**LEAKING), "modules": ENCODER})
    assert "# size(0) without batch_first" in make.check(COPY, process)[2].fix_code


def test_the_end_of_the_loss_is_that_of_the_training_where_the_calls_were_its_loss(make) -> None:
    losses = [3.0 * 0.98**step for step in range(400)]
    rows = calls(20, **COPIED)
    own = [row | {"value": losses[row["step"]]} for row in rows]
    steps = make.steps() | {"loss": losses}
    _, _, finding = make.check(COPY, make.process(steps, more={"loss_calls": own}))
    assert "The loss went from 3 to 0.000947." in finding.summary
    summed = {"reduction": "sum", "target_shape": "4x25", "ignored": 0.2}
    added = [row | summed | {"value": 80 * losses[row["step"]]} for row in rows]
    _, _, finding = make.check(COPY, make.process(steps, more={"loss_calls": added}))
    assert "The loss went from 3 to 0.000947." in finding.summary, "a sum that the script divides by its targets"
    part_of_it = [row | {"value": 2.0 - 0.01 * row["step"]} for row in rows]
    _, _, finding = make.check(COPY, make.process(steps, more={"loss_calls": part_of_it}))
    assert "The loss went from 2 to 1.81 at step 20, where it was last looked at." in finding.summary


@pytest.mark.parametrize(
    ("made", "loss", "edited"),
    [
        ("criterion = nn.CrossEntropyLoss()", "loss = criterion(scores, y)", "nn.CrossEntropyLoss(ignore_index=0)"),
        ("self.ce = CrossEntropyLoss(label_smoothing=0.1)", "loss = self.ce(scores, y)", "0.1, ignore_index=0)"),
        ("other = nn.CrossEntropyLoss()", "loss = criterion(scores, y)", ""),
        ("criterion = nn.CrossEntropyLoss(", "loss = criterion(scores, y)", ""),  # the rest was not recorded
    ],
)
def test_padding_is_left_out_where_the_loss_is_made(make, made: str, loss: str, edited: str) -> None:
    """If no other target has its class."""
    text = f"    {made}\n" + "    x = 1\n" * 3 + f"    {loss}"
    site = {"site": 3, "role": "loss", "file": "a.py", "line": 60, "function": "main", "source": loss}
    rows = calls(**PADDED, pad_elsewhere=0.0)
    process = make.process(more={"loss_calls": rows}, sites=[site | {"excerpt_line": 56, "excerpt": text}])
    _, _, finding = make.check(PADDING, process)
    assert finding.location.line == (56 if edited else 60)
    assert bool(finding.diff) == bool(edited)
    assert edited in "".join(finding.diff.added if finding.diff else [])


@pytest.mark.parametrize(("begins", "behind", "line"), [(32.0, 2.0, 56), (31.0, 2.0, 60), (None, None, 60)])
def test_padding_behind_an_end_symbol_is_left_out_there_too(
    make, begins: float | None, behind: float | None, line: int
) -> None:
    """What follows the end symbol in the targets is padding. Only the script knows whether it is one: the example is no
    edit. Older recordings do not say which id that is."""
    text = "    ce = nn.CrossEntropyLoss()\n" + "    x = 1\n" * 3 + "    loss = ce(scores, y)"
    site = {"site": 3, "role": "loss", "file": "a.py", "line": 60, "function": "main", "source": "loss = ce(scores, y)"}
    rows = calls(**PADDED, ignore_index=-100.0, pad_elsewhere=32.0, pad_begins=begins, pad_behind=behind)
    process = make.process(more={"loss_calls": rows}, sites=[site | {"excerpt_line": 56, "excerpt": text}])
    _, _, finding = make.check(PADDING, process)
    assert finding.location.line == line
    assert finding.diff is None
    assert (finding.fix_code == "ce = nn.CrossEntropyLoss(ignore_index=0)") == (line == 56)
    assert ("it is only the target of id 2" in finding.fix) == (line == 56)
    assert ("If no real token has class 0" in finding.fix) == (line == 60)


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("self.rnn = nn.LSTM(64, 128, batch_first=True, bidirectional=True)", True),
        ("self.rnn = nn.LSTM(64, 128, batch_first=True, bidirectional=both)", True),
        ("self.rnn = nn.LSTM(64, 128, batch_first=True, bidirectional=False)", False),  # attention, then
        ("self.rnn = nn.LSTM(64, 128, batch_first=True)", False),
    ],
)
def test_what_reads_the_next_token_backwards_is_named(make, made: str, named: bool) -> None:
    sites = [{"site": 7, "role": "module", "file": "a.py", "line": 20, "function": "__init__", "source": made}]
    modules = [{"model": 0, "module": "rnn", "kind": "LSTM", "made_at": 7}]
    process = make.process(more={"loss_calls": calls(**LEAKING), "modules": modules}, sites=sites)
    _, _, finding = make.check(COPY, process)
    assert ("LSTM also runs backwards" in finding.title) == named
    assert (finding.location is not None and finding.location.line == 20) == named
    assert ("bidirectional=False" in finding.fix_code) == named
