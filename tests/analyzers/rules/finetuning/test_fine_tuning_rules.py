"""Rules about targets that count, and how they are weighed: what they fire on, and what looks the same."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights import per_step

COUNT = 40


def calls(make: Any, losses: float | None = None, **columns: Any) -> Any:
    """A process with 40 looked-at calls of cross_entropy; a column's value is one for all calls, or a list."""
    row = {
        "function": "cross_entropy",
        "site": 1,
        "training": True,
        "reduction": "mean",
        "input_shape": "64x90",
        "target_shape": "64",
        "value": 2.0,
        "ignored": 0.5,
        "ids_compared": 60.0,
        "ids_equal": 0.0,
        "ids_ahead": 0.0,
    }
    rows = [
        row | {"step": index // 4} | {k: v[index] if isinstance(v, list) else v for k, v in columns.items()}
        for index in range(COUNT)
    ]
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    if losses is not None:
        steps |= {"loss": losses if isinstance(losses, list) else [losses] * 400}
    return make.process(steps, more={"loss_calls": rows})


def test_batches_without_a_target_that_counts(make) -> None:
    status, _, finding = make.check("labels-all-ignored", calls(make, ignored=1.0, value=float("nan")))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert "NaN" in finding.title
    some = [1.0 if index % 5 == 0 else 0.6 for index in range(COUNT)]
    status, _, finding = make.check("labels-all-ignored", calls(make, ignored=some, value=0.0))
    assert (status, finding.severity) == ("fired", "warning")
    assert "20% of the batches looked at" in finding.title
    assert "the loss is 0" in finding.title


NOW_AND_THEN = [0.5 if step % 4 else float("nan") for step in range(400)]


@pytest.mark.parametrize(("losses", "part"), [(float("nan"), 1.0), (0.5, 0.2), (NOW_AND_THEN, 0.25)])
def test_what_losses_of_nan_cost(make, losses: float | list[float], part: float) -> None:
    """All from the first one on, if they stay; where the loop skips their steps, those batches alone; where the weights
    stay finite, the steps whose losses are NaN, of which a part was looked at."""
    some = [1.0 if index % 5 == 0 else 0.6 for index in range(COUNT)]
    values = [float("nan") if share == 1.0 else 0.5 for share in some]
    process = calls(make, ignored=some, value=values, losses=losses)
    finding = make.check("labels-all-ignored", process)[2]
    assert "the loss is NaN" in finding.title
    assert finding.cost.share == pytest.approx(part, abs=0.01)


def cut_off(make: Any, shapes: list[str], filled: float, source: str, sites: tuple[dict[str, Any], ...] = ()) -> Any:
    batches = [
        {"time": 0.1, "step": step, "loader": 0, "epoch": 0, "batch": step, "trained": True, "field": field}
        | {"shape": shape, "mean": filled, "dtype": "int64"}
        for step, shape in enumerate(shapes)
        for field in ("labels", "attention_mask")
    ]
    site = {"site": 5, "role": "data", "file": "a.py", "line": 81, "function": "main", "source": source}
    rows = [
        {"step": step, "function": "cross_entropy", "site": 1, "training": True, "input_shape": "480x29"}
        | {"target_shape": "480", "value": 0.0, "ignored": 1.0 - (step % 3 == 0) * 0.01}
        for step in range(COUNT)
    ]
    process = make.process(sites=[site, *sites], more={"loss_calls": rows, "batches": batches})
    return make.check("labels-all-ignored", process)[2]


def test_answers_that_are_cut_off_are_not_dropped(make) -> None:
    cut = cut_off(make, ["32x16"] * 8, 0.99, "train, test = Facts(1, max_length=16), Facts(2, max_length=16)")
    assert cut.location.line == 81
    assert "Every batch looked at is 16 long, 99% of it text" in cut.summary
    assert cut.fix_code.startswith("train, test = Facts(1, max_length=32), Facts(2, max_length=32)  #")
    elsewhere = cut_off(make, ["32x16"] * 8, 0.99, "data = Facts(1, length=16)")
    assert "cut from the left" in elsewhere.fix_code
    padded = cut_off(make, ["32x16"] * 8, 0.4, "data = Facts(1, max_length=16)")
    differ = cut_off(make, ["32x16", "32x12"] * 4, 0.99, "data = Facts(1, max_length=16)")
    assert "Usually truncation" in padded.summary
    assert "truncation" not in differ.summary, "fewer batches have the greatest length than have no target"
    assert "maximum length" not in differ.fix
    assert all("samples = [s for s" not in one.fix_code for one in (cut, elsewhere, padded, differ)), (
        "two of three batches of 32 without a target are nearly all samples"
    )


def test_the_line_that_gives_the_length_at_which_texts_are_cut(make) -> None:
    """A name has the length, and another line cuts at it."""
    cuts = {"site": 6, "role": "length", "file": "a.py", "line": 38, "function": "encode"}
    cuts |= {"source": 'return {"input_ids": (prompt + answer)[:most],'}
    gives = {"site": 7, "role": "constant", "file": "a.py", "line": 68, "function": "main", "source": "most = 16"}
    gives |= {"name": "most", "value": "16"}
    other = gives | {"site": 8, "line": 70, "source": "batch = 16", "name": "batch"}  # which cuts nothing

    def found(*sites: dict[str, Any]) -> Any:
        return cut_off(make, ["32x16"] * 8, 0.99, "data = Facts(1, 16)", sites)

    assert found(cuts, gives, other).location.line == 68
    assert found(cuts, gives, other).fix_code.startswith("most = 32  #")
    option = gives | {"source": 'parser.add_argument("--most", type=int, default=16)'}
    assert "default=32)  # or more" in found(cuts, option, other).fix_code
    again = gives | {"site": 9, "line": 90, "function": "test"}
    for sites in ((cuts, other), (cuts, gives, again)):
        assert found(*sites).location.line == 38
        assert "cut from the left" in found(*sites).fix_code


@pytest.mark.parametrize(
    ("shapes", "padded", "said"),
    [
        (["32x16"] * 8, 0.0, "Every batch looked at is 16 long, and 100% of the rows fill it"),
        (["32x16", "32x12"] * 4, 0.0, "Usually truncation"),
        (["32x16"] * 8, 0.7, "Usually truncation"),  # padded to one length
        (["32x16"] * 2, 0.0, "Usually truncation"),
    ],
)
def test_answers_that_are_cut_off_in_batches_without_names(make, shapes, padded: float, said: str) -> None:
    batches = [
        {"time": 0.1, "step": step, "loader": 0, "epoch": 0, "batch": step, "trained": True, "field": field}
        | {"shape": shape, "mean": 40.0, "dtype": "int64"}
        for step, shape in enumerate(shapes)
        for field in ("0", "1")
    ]
    rows = [
        {"step": step, "function": "cross_entropy", "site": 1, "training": True, "input_shape": "480x29"}
        | {"target_shape": "480", "value": 0.0, "ignored": 1.0, "pad_rows": padded}
        for step in range(COUNT)
    ]
    process = make.process(more={"loss_calls": rows, "batches": batches})
    assert said in make.check("labels-all-ignored", process)[2].summary


def test_the_line_that_masks_all_of_a_text(make) -> None:
    """Where no maximum length cuts answers off: what the line masks up to is to be printed."""
    shapes = ["16x43", "16x43", "16x41", "16x43"]
    batches = [
        {"time": 0.1, "step": step, "loader": 0, "epoch": 0, "batch": step, "trained": True, "field": "labels"}
        | {"shape": shape, "mean": -100.0, "dtype": "int64"}
        for step, shape in enumerate(shapes)
    ]
    made = {"site": 6, "role": "labels", "file": "a.py", "line": 66, "function": "__call__"}
    made |= {"source": "input_ids, labels, mask = [], [], []", "excerpt_line": 66}

    def found(*lines: str) -> Any:
        text = "\n".join(f"        {line}" for line in (made["source"], "for row in rows:", *lines))
        process = calls(make, ignored=1.0, value=0.0)
        more = {"loss_calls": loss_rows(process), "batches": batches}
        return make.check("labels-all-ignored", make.process(sites=[made | {"excerpt": text}], more=more))[2]

    listed = found("    labels.append([self.ignore_index] * start + ids[start:] + [self.ignore_index] * pad)")
    assert listed.location.line == 68
    assert listed.fix.startswith("Line 68 masks all ids up to start: print it beside the number of ids.")
    assert listed.fix_code.startswith("print(start, len(ids), ids)")
    sliced = found("    labels[i, :begin] = -100")
    assert (sliced.location.line, "masks what stands in front" in sliced.fix) == (68, True)
    padding = found("    labels.append(row + [-100] * pad)")
    assert padding.location is None or padding.location.line != 66, "an empty list masks nothing"
    assert padding.fix.endswith("No sample that was looked at has a target, so dropping such samples is no remedy.")
    for one in (listed, sliced, padding):
        assert "truncation" not in one.summary


def test_a_few_samples_without_an_answer_are_dropped(make) -> None:
    some = [1.0 if index % 5 == 0 else 0.6 for index in range(COUNT)]
    process = calls(make, ignored=some, value=0.0)
    single = make.process({**make.steps(), "batch_size": [1] * 400}, more={"loss_calls": loss_rows(process)})
    assert "samples = [s for s" in make.check("labels-all-ignored", single)[2].fix_code


def loss_rows(process: Any) -> list[dict[str, Any]]:
    return list(process.tables["loss_calls"].records())


def test_a_sum_that_is_divided_by_no_targets_afterwards(make) -> None:
    """As the trainer of transformers does: cross_entropy gives 0, and the loss of the step is NaN."""
    divided = make.check("labels-all-ignored", calls(make, ignored=1.0, value=0.0, losses=float("nan")))[2]
    assert "the loss is NaN" in divided.title
    assert "In every batch that was looked at" in divided.summary


def test_a_loss_over_no_targets_whose_value_is_not_known(make) -> None:
    finding = make.check("labels-all-ignored", calls(make, ignored=1.0, value=None))[2]
    assert finding.title == "No target counts in any batch: nothing is learned from these"
    assert "the loss is" not in finding.summary
    assert "loss of such a batch" not in {one.name for one in finding.evidence}


def test_masked_prompts_and_rows_are_no_fault(make) -> None:
    for ignored in (0.0, 0.5, 0.97, [1.0] + [0.9] * (COUNT - 1)):
        assert make.check("labels-all-ignored", calls(make, ignored=ignored))[0] == "passed"
    assert make.check("labels-all-ignored", calls(make, ignored=1.0, training=False))[0] == "skipped"
    status, reason, _ = make.check("labels-all-ignored", make.process())
    assert (status, bool(reason)) == ("skipped", True)


def test_labels_that_are_two_positions_ahead(make) -> None:
    status, _, finding = make.check("labels-shifted-twice", calls(make, ids_ahead=1.0))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "certain")
    assert finding.location.line == 41


def shift(number: int, function: str, source: str, role: str = "shift") -> dict[str, Any]:
    before = {"excerpt": f"    {source}", "excerpt_line": number}
    return {"role": role, "file": "a.py", "line": number, "function": function, "source": source} | before


EVALUATION = (
    shift(50, "accuracy", "labels = ids[:, 1:]"),
    shift(49, "accuracy", "logits = model(ids)", "evaluation"),
)
READER = (
    shift(30, "__getitem__", "def __getitem__(self, index):", "dataset"),
    shift(32, "__getitem__", 'return {"x": song[:-1], "y": song[1:]}'),
)
COLLATE = (
    shift(34, "collate", "def collate(rows):", "collate"),
    shift(36, "collate", "x, y = ids[:, :-1], ids[:, 1:]"),
)
BATCH = (
    shift(34, "__call__", "def __call__(self, rows):", "collate"),
    {**shift(36, "__call__", '"labels": wanted[:, 1:],'), "excerpt_line": 35}
    | {"excerpt": '    return {"input_ids": ids[:, :-1],\n            "labels": wanted[:, 1:],\n            }'},
)
APART = (
    shift(34, "__call__", "def __call__(self, rows):", "collate"),
    {**shift(37, "__call__", "labels = wanted[:, 1:]"), "excerpt_line": 36}
    | {"excerpt": "    given = wanted[:, :-1]\n    labels = wanted[:, 1:]"},
)
WINDOWS = (
    {**shift(46, "get_batch", "y = torch.stack([ids[i + 1 : i + 1 + size] for i in starts])"), "excerpt_line": 45}
    | {
        "excerpt": "    x = torch.stack([ids[i : i + size] for i in starts])\n"
        "    y = torch.stack([ids[i + 1 : i + 1 + size] for i in starts])"
    },
)
FROM_ONE = (
    {**shift(40, "__init__", "self.labels = stream[1 : usable + 1].view(-1, size)"), "excerpt_line": 39}
    | {
        "excerpt": "    self.inputs = stream[:usable].view(-1, size)\n"
        "    self.labels = stream[1 : usable + 1].view(-1, size)"
    },
)
ALONE = ({**WINDOWS[0], "excerpt_line": 46, "excerpt": WINDOWS[0]["excerpt"].split("\n")[1]},)
MAP = (shift(20, "tokenize", 'row["labels"] = row["input_ids"][1:] + [0]'),)
FILLED = (
    shift(34, "collate", "def collate(rows):", "collate"),
    shift(53, "collate", "targets[:, :-1] = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)"),
)
PADDED = (FILLED[0], shift(53, "collate", "targets[:, :-1] = torch.where(mask[:, :-1], ids[:, 1:], -100)"))
HELPER = (shift(12, "log_probs", "picked = logp.gather(2, ids[:, 1:, None])"),)


@pytest.mark.parametrize(
    ("lines", "number", "added"),
    [
        (READER, 32, '    return {"x": song[:-1], "y": song[:-1]}'),
        (READER + EVALUATION + MAP + HELPER, 32, '    return {"x": song[:-1], "y": song[:-1]}'),
        (COLLATE + HELPER, 36, "    x, y = ids[:, :-1], ids[:, :-1]"),
        (BATCH, 36, '            "labels": wanted[:, :-1],'),
        (APART, 37, "    labels = wanted[:, :-1]"),
        (WINDOWS, 46, "    y = torch.stack([ids[i : i + size] for i in starts])"),
        (FROM_ONE, 40, "    self.labels = stream[:usable].view(-1, size)"),
        (FILLED, 53, "    targets[:] = ids.masked_fill(mask == 0, -100)"),
        (PADDED, 53, None),  # something else is cut as well
        (ALONE, 46, None),  # where the ids begin is not known
        (MAP + EVALUATION + HELPER, 20, None),  # by how much the ids are cut is not known
        (HELPER + EVALUATION, 41, None),
        ((*MAP, shift(60, "encode", "labels = ids[1:]")), 41, None),  # either of the two
    ],
)
def test_the_line_that_shifts_the_labels(make, lines: tuple[Any, ...], number: int, added: str | None) -> None:
    call = {"site": 1, "role": "loss", "file": "a.py", "line": 41, "function": "main", "source": "trainer.train()"}
    sites = [call] + [{**one, "site": 10 + index} for index, one in enumerate(lines)]
    process = make.process(sites=sites, more={"loss_calls": loss_rows(calls(make, ids_ahead=1.0))})
    finding = make.check("labels-shifted-twice", process)[2]
    assert finding.location.line == number
    assert ([one for one in finding.diff.added if "1:" in one or one == added] if finding.diff else None) == (
        [added] if added else None
    )
    assert finding.diff or (f"line {number}" in finding.fix_code) == (number != 41)
    assert ("The last id of a row is then no target" in finding.fix) == (":-1]" in (added or ""))


@pytest.mark.parametrize(
    ("source", "library"),
    [("loss = model(**batch).loss", True), ("loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())", False)],
)
def test_labels_that_are_shifted_twice_without_a_model_that_shifts(make, source: str, library: bool) -> None:
    """A loop that computes its loss itself passes no labels to a model of transformers."""
    site = {"site": 1, "role": "loss", "file": "a.py", "line": 41, "function": "main", "source": source}
    process = make.process(sites=[site], more={"loss_calls": loss_rows(calls(make, ids_ahead=1.0))})
    finding = make.check("labels-shifted-twice", process)[2]
    assert ("transformers" in finding.fix) is ("the model shifts them again" in finding.summary) is library
    assert ("tokens[:, 1:]" in finding.fix_code) is not library


def test_the_labels_without_the_shift_have_the_names_of_the_line(make) -> None:
    call = {"site": 1, "role": "loss", "file": "a.py", "line": 41, "function": "main", "source": "trainer.train()"}
    for number, (line, shown) in enumerate(
        (
            ("labels = torch.cat([ids[1:], ids[:1]])", "labels = ids.clone()"),
            ("y = row[1:] + [0]", "y = list(row)"),
            ("self.labels = stream[1 : n + 1].view(-1, size)", "labels = input_ids.clone()"),
            ("y = np.stack([tokens[i + 1 : i + 1 + size] for i in at])", "labels = input_ids.copy()"),
            ("y = row[1:]\n    row = torch.tensor(rows[index])", "y = row.clone()"),
        )
    ):
        site = shift(20 + number, "__getitem__", line) | {"site": 10, "source": line.split("\n")[0]}
        process = make.process(sites=[call, site], more={"loss_calls": loss_rows(calls(make, ids_ahead=1.0))})
        assert shown in make.check("labels-shifted-twice", process)[2].fix_code


@pytest.mark.parametrize(
    ("more", "ignored"), [("", False), ("\n    y[:3] = -100", True), ("\n    y = torch.full((3,), -100)", True)]
)
@pytest.mark.parametrize("function", ["main", "__getitem__"])
def test_ignored_labels_are_named_where_the_script_has_some(make, more: str, ignored: bool, function: str) -> None:
    call = {"site": 1, "role": "loss", "file": "a.py", "line": 41, "function": "main"}
    call |= {"source": "loss = model(input_ids=x, labels=y).loss"}
    site = shift(20, function, "y = row[1:] + [0]") | {"site": 10, "excerpt": f"    y = row[1:] + [0]{more}"}
    process = make.process(sites=[call, site], more={"loss_calls": loss_rows(calls(make, ids_ahead=1.0))})
    finding = make.check("labels-shifted-twice", process)[2]
    assert ("-100" in finding.fix) == ("-100" in finding.fix_code) == ignored


def test_labels_of_the_next_position(make) -> None:
    assert make.check("labels-shifted-twice", calls(make, ids_ahead=0.1))[0] == "passed"
    assert make.check("labels-shifted-twice", calls(make, ids_ahead=1.0, ids_compared=4.0))[0] == "skipped", "too few"
    several = [1.0 if index % 2 else 0.0 for index in range(COUNT)]  # a head for the token after the next one
    assert make.check("labels-shifted-twice", calls(make, ids_ahead=several))[0] == "passed"
    assert make.check("labels-shifted-twice", make.process())[0] == "skipped"


def test_a_second_head_for_the_token_after_the_next_one(make) -> None:
    """Each head has a line of its own, and one of them learns the next token."""
    heads = [
        {"step": step, "function": "cross_entropy", "site": site, "training": True, "ids_compared": 90.0,
         "ids_ahead": float(site == 2), "ids_next": float(site == 1)}
        for step in range(COUNT) for site in (1, 2)
    ]  # fmt: skip
    sites = [{"site": site, "role": "loss", "file": "a.py", "line": 40 + site, "source": "l = f(x)"} for site in (1, 2)]
    assert make.check("labels-shifted-twice", make.process(more={"loss_calls": heads}, sites=sites))[0] == "passed"
    alone = [row for row in heads if row["site"] == 2]
    assert make.check("labels-shifted-twice", make.process(more={"loss_calls": alone}, sites=sites))[0] == "fired"


UNEQUAL = [0.1, 0.8, 0.95, 0.5] * (COUNT // 4)


def test_means_over_unequal_numbers_of_targets(make) -> None:
    status, _, finding = make.check("unequal-microbatch-weights", calls(make, ignored=UNEQUAL))
    assert "num_items_in_batch" not in finding.fix_code, "a loop of the script's own"
    assert (status, finding.severity) == ("fired", "warning")
    assert round(finding.evidence[0].value) == 18


@pytest.mark.parametrize(("sites", "line"), [((1,), 41), ((1, 2), 60)])
def test_means_over_unequal_numbers_stand_at_the_loss_that_is_to_be_a_sum(make, sites: tuple[int, ...], line) -> None:
    """Not at the backward, in another function; of several losses it is not known which."""
    rows = loss_rows(calls(make, ignored=UNEQUAL))
    rows = [row | {"site": sites[at % len(sites)]} for at, row in enumerate(rows)]
    places = [
        {"site": one, "role": "loss", "file": "a.py", "line": 40 + one, "function": "loss", "source": "return f(x, y)"}
        for one in (1, 2)
    ]
    places.append({"site": 3, "role": "backward", "file": "a.py", "line": 60, "source": "loss.backward()"})
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    process = make.process(steps, sites=places, more={"loss_calls": rows})
    finding = make.check("unequal-microbatch-weights", process)[2]
    assert (finding.location.line, (finding.seen_at or finding.location).line) == (line, 60)


def test_the_sum_over_targets_is_that_of_the_script_s_own_call(make) -> None:
    """Classes of a picture are in dimension 1: what flattens the last but one would mix them with places."""
    rows = [row | {"site": 1} for row in loss_rows(calls(make, ignored=UNEQUAL))]
    line = "return F.cross_entropy(self.net(x), y, ignore_index=255)"
    site = {"site": 1, "role": "loss", "file": "a.py", "line": 41, "function": "loss", "source": line}
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    backward = {"site": 3, "role": "backward", "file": "a.py", "line": 60, "source": "loss.backward()"}
    process = make.process(steps, sites=[site, backward], more={"loss_calls": rows})
    code = make.check("unequal-microbatch-weights", process)[2].fix_code
    assert 'cross_entropy(self.net(x), y, ignore_index=255, reduction="sum") / targets' in code
    assert "flatten" not in code


ACCELERATES = """def fit(accelerator, loader):
    for words, tags in loader:
        with accelerator.accumulate(model):
            loss = F.cross_entropy(model(words), tags)
            accelerator.backward(loss)
            optimizer.step()"""


@pytest.mark.parametrize("accumulates", [True, False])
def test_accelerate_divides_each_loss_where_no_line_does(make, accumulates: bool) -> None:
    """Not known without accumulate(): then the script may count the micro-batches, and divide, by itself."""
    text = ACCELERATES if accumulates else ACCELERATES.replace("with accelerator.accumulate(model)", "if True")
    lines = text.split("\n")
    sites = [
        {"site": site, "role": role, "file": "a.py", "line": line, "function": "fit", "source": lines[line - 1].strip()}
        | {"excerpt": text, "excerpt_line": 1}
        for site, (role, line) in enumerate((("loader", 2), ("loss", 4), ("backward", 5)), 1)
    ]
    rows = [row | {"site": 2} for row in loss_rows(calls(make, ignored=UNEQUAL))]
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    optimizers = [{"optimizer": 0, "name": "Adam", "backward_site": 3}]
    process = make.process(steps, sites=sites, optimizers=optimizers, more={"loss_calls": rows})
    optimization = process.optimizations[0]
    said, code = per_step.divided_by(optimization, 4), per_step.example(optimization, process.site(2), None, 4)
    assert ("accelerator.backward() divides each loss by 4" in said) is accumulates
    assert ("take back what divides each loss by 4" in said) is not accumulates
    assert ("accelerator.backward(loss * 4)" in code) is accumulates
    assert ("for words, tags in micro_batches:" in code) is accumulates
    assert 'F.cross_entropy(model(words), tags, reduction="sum") / targets' in code
    assert code.startswith("import itertools  # at the top of the file\n") is accumulates
    if accumulates:
        compile(code, "example", "exec")
    undivided = per_step.example(optimization, process.site(2), None, 0)
    assert "* 4" not in undivided


def test_means_over_unequal_numbers_of_targets_under_a_trainer(make) -> None:
    """The Trainer of transformers gives compute_loss the number of targets of the whole step."""
    process = calls(make, ignored=UNEQUAL)
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    site = {"site": 1, "role": "loss", "file": "a.py", "line": 61, "function": "Own.compute_loss"}
    site |= {"source": "loss = F.cross_entropy(logits, goal)"}
    backward = {"site": 2, "role": "backward", "file": "a.py", "line": 90, "source": "trainer.train()"}
    own = make.process(steps, sites=[site, backward], more={"loss_calls": loss_rows(process)})
    finding = make.check("unequal-microbatch-weights", own)[2]
    assert finding.fix_code.endswith('\nloss = F.cross_entropy(logits, goal, reduction="sum") / num_items_in_batch')
    assert "backward()" not in finding.fix_code, "the Trainer calls it"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("flat = logp.mean(dim=1)\nloss = each.mean()\nreturn (loss, out) if both else loss", 62),
        ("flat = logp.mean()\nloss = each.mean()\nreturn (loss, out) if both else loss", 62),
        ("flat = logp.mean(dim=1)\nloss = each.mean()\nreturn total", 90),
        ("loss = each.mean()\nloss = loss + other.mean()\nreturn loss", 61),
        ("flat = logp.mean(1)\nreturn each.mean()\n", 62),
    ],
)
def test_a_mean_that_is_written_out_for_a_trainer(make, text: str, line: int) -> None:
    """The line whose mean compute_loss returns, where one line does so; a term that is added to it stays."""
    lines = text.split("\n")
    at = {"file": "a.py", "function": "Own.compute_loss", "excerpt": "\n".join(f"    {one}" for one in lines)}
    sites = [
        {"site": n, "role": "trainer-mean", "line": 61 + n, "source": one, "excerpt_line": 61} | at
        for n, one in enumerate(lines)
        if ".mean(" in one
    ]
    sites.append({"site": 8, "role": "training-call", "line": 60, "source": "out = model(x)"} | at | {"excerpt": None})
    sites.append({"site": 9, "role": "backward", "file": "a.py", "line": 90, "source": "trainer.train()"})
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    called = [row | {"site": None} for row in loss_rows(calls(make, ignored=UNEQUAL))]
    finding = make.check("unequal-microbatch-weights", make.process(steps, sites=sites, more={"loss_calls": called}))[2]
    assert (finding.location.line, "each.sum() / num_items_in_batch" in finding.fix_code) == (line, line != 90)


def test_sums_and_equal_numbers_are_no_fault(make) -> None:
    rule = "unequal-microbatch-weights"
    assert make.check(rule, calls(make, ignored=[0.5, 0.4, 0.45, 0.5] * 10))[0] == "passed"
    assert make.check(rule, calls(make, ignored=UNEQUAL, reduction="sum"))[0] == "skipped"
    one = calls(make, ignored=UNEQUAL)
    single = make.process(make.steps(), more={"loss_calls": list(one.tables["loss_calls"].records())})
    assert make.check(rule, single)[0] == "skipped", "one backward per step"
    assert make.check(rule, make.process())[0] == "skipped"


def graphs(make: Any, targets: list[float], weight: Any) -> Any:
    """Ten steps of four losses each, whose graphs tell of so many targets and of the weight of their mean."""
    rows = [
        {"step": step, "targets": number, "weight": weight(number)} for step in range(COUNT // 4) for number in targets
    ]
    steps = make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400}
    called = loss_rows(calls(make, ignored=UNEQUAL))
    return make.process(steps, more={"counted_targets": rows, "loss_calls": called})


def test_graphs_of_losses_say_what_a_mean_weighs(make) -> None:
    """More than the arguments of a loss function do: it may be written out, or multiplied by its share of the step."""
    rule, unequal = "unequal-microbatch-weights", [48.0, 480.0, 96.0, 160.0]
    _, _, finding = make.check(rule, graphs(make, unequal, lambda number: 1.0))
    assert finding.evidence[0].value == pytest.approx(10.0)
    assert "divides" not in finding.fix
    _, _, finding = make.check(rule, graphs(make, unequal, lambda number: 0.25))
    assert "take back what divides each loss by 4" in finding.fix
    assert make.check(rule, graphs(make, unequal, lambda number: number / 784))[0] == "passed", "over the step's"
    assert make.check(rule, graphs(make, [90.0, 100.0, 95.0, 98.0], lambda number: 1.0))[0] == "passed"


@pytest.mark.parametrize(
    ("rows", "fields", "code"),
    [
        (
            {"input_shape": "2x4x32x32", "target_shape": "2x32x32", "ignore_index": 255.0},
            {"pixels": "float32", "mask": "int64"},
            'cross_entropy(model(batch["pixels"]), batch["mask"], ignore_index=255, reduction=\'sum\')',
        ),
        (
            {"input_shape": "64x90", "target_shape": "64", "ignore_index": -100.0},
            {"0": "int64", "1": "int64"},
            "cross_entropy(model(x).flatten(0, -2), y.flatten(), reduction='sum')",
        ),
        (
            {"input_shape": "2x4x32x32", "target_shape": "2x32x32"},
            {"0": "float32", "1": "int64"},
            "cross_entropy(model(x), y, reduction='sum')",
        ),
    ],
)
def test_the_example_of_a_sum_over_targets_takes_what_was_recorded(make, rows, fields, code: str) -> None:
    """The value that does not count, the fields of a batch, and classes that are not in the last dimension."""
    process = calls(make, ignored=UNEQUAL, **rows)
    batches = [{"step": 0, "trained": True, "field": name, "dtype": dtype} for name, dtype in fields.items()]
    process = make.process(
        make.steps() | {"backwards": [4] * 400, "microbatches": [4] * 400, "loader_batches": [None] * 400},
        more={"loss_calls": loss_rows(process), "batches": batches},
        sites=[
            {"site": 2, "role": "loader", "file": "a.py", "line": 4, "source": "for batch in loader:"},
            {"site": 3, "role": "backward", "file": "a.py", "line": 6, "source": "loss.backward()"},
        ],
    )
    found = make.check("unequal-microbatch-weights", process)[2].fix_code
    assert code in found
    assert f"!= {int(rows.get('ignore_index', -100))})" in found
    assert ("for batch in micro_batches" in found) == ("pixels" in fields)


@pytest.mark.parametrize(
    ("fields", "largest", "plain"),
    [
        (("0", "1", "2"), 119.0, True),
        (("0", "1"), 89.0, False),  # the next ids, of 90
        (("input_ids", "labels"), 119.0, False),  # as trainers of texts name them
        ((), 0.0, False),
    ],
)
def test_labels_of_a_tagger_are_no_answers_that_were_cut_off(make, fields, largest: float, plain: bool) -> None:
    """Ids beyond the last class: the targets are not the ids that follow, and nothing tells of prompts or templates."""
    row = {"trained": True, "dtype": "int64", "max": largest}
    batches = [row | {"step": step, "field": one, "shape": f"8x{20 + step}"} for step in range(4) for one in fields]
    rows = loss_rows(calls(make, ignored=1.0, value=0.0))
    finding = make.check("labels-all-ignored", make.process(more={"loss_calls": rows, "batches": batches}))[2]
    assert ("template" in finding.summary + finding.fix) != plain
    assert ("for field in batch" in finding.fix_code) == plain
