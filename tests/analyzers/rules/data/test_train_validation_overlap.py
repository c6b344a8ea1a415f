"""The rule train-validation-overlap, and the estimate behind it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tracelyze.analyzers.computed.splits import overlap
from tracelyze.analyzers.rules.data.train_validation_overlap import copies as split_copies

RULE = "train-validation-overlap"
TRAIN = {"loader": 0, "dataset": "Subset", "length": 100, "batch_size": 32, "iterable": False, "made_at": 2}
HELD = TRAIN | {"loader": 1, "length": 25}


def one_pass(
    loader: int, epoch: int, step: int, samples: list[int], trained: bool, **more: Any
) -> list[dict[str, Any]]:
    """A pass of which 8 of every 32 samples are looked at."""
    row = {"loader": loader, "epoch": epoch, "step": step, "trained": trained, "field": "0", "shape": "32x10"}
    return [
        row
        | {"batch": at // 32, "prints": " ".join(f"s{one}" for one in samples[at : at + 8]), "dtype": "int64"}
        | more
        for at in range(0, len(samples), 32)
    ]


def passes(training: list[int], validation: list[int], loader: int = 1, epochs: int = 4, **more: Any):
    """Epochs of a shuffled training set, a validation pass after each."""
    rows = []
    for epoch in range(epochs):
        order = random.Random(epoch).sample(training, len(training))
        rows += one_pass(0, epoch, 100 * epoch, order, True, **more)
        rows += one_pass(loader, epoch, 100 * (epoch + 1), validation, False, **more)
    return rows


def judge(make, rows, loaders=(TRAIN, HELD), **evals: Any):
    return make.check(RULE, make.process(loaders=list(loaders), more={"batches": rows}, evals=make.evals() | evals))


@pytest.mark.parametrize("common", [200, 400, 800])
def test_part_of_the_validation_set_is_trained_on(make, common: int) -> None:
    status, _, finding = judge(make, passes(list(range(3200)), list(range(3200 - common, 4000 - common))))
    assert (status, finding.severity, finding.first_step) == ("fired", "critical", 100)
    assert finding.evidence[1].value == pytest.approx(common / 800, abs=0.15)
    said = "All validation samples are" if finding.evidence[1].value == 1.0 else "About "
    assert finding.title.startswith(said), "no share that is all is about 100%"
    assert "100%" not in finding.title + finding.summary


def test_a_set_of_which_too_little_was_seen_hides_no_other(make) -> None:
    """A half of the validation set is trained on; of a test set at the end eight samples were looked at."""
    rows = passes(list(range(3200)), list(range(2800, 3600)), epochs=8)
    rows += one_pass(2, 8, 900, list(range(9000, 9032)), False)
    test_set = HELD | {"loader": 2, "length": 1}
    loaders = (TRAIN, HELD, test_set)
    evals = {"loader": [1, 1, 1, 2], "losses": [25, 25, 25, 1]}
    status, _, finding = judge(make, rows, loaders, **evals)
    assert (status, finding.evidence[1].value) == ("fired", pytest.approx(0.5, abs=0.15))
    everything = passes(list(range(3200)), list(range(3200)), epochs=8)
    everything += one_pass(2, 8, 900, list(range(9000, 9032)), False)
    assert judge(make, everything, loaders, **evals)[0] != "fired", "a measure of the training accuracy"


def test_a_split_made_twice_of_which_an_accuracy_alone_is_computed(make) -> None:
    """Four fifths of a fifth are met, and no more: a measure of training accuracy would meet all."""
    rows = passes(list(range(3200)), list(range(2560, 3360)), epochs=8)
    without = {"losses": [0] * 4, "forwards": [25] * 4}
    assert judge(make, rows, **without)[0] == "fired"
    assert judge(make, passes(list(range(3200)), list(range(2400, 3200)), epochs=8), **without)[0] == "skipped"


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("test_loader = DataLoader(train_set, batch_size=32)", "fired"),
        ("self.val_dl = DataLoader(train_set, batch_size=32)", "fired"),
        ('"val": DataLoader(train_set, batch_size=32),', "fired"),
        ("errors = DataLoader(train_set, batch_size=32)", "passed"),
        ("train_eval_loader = DataLoader(train_set, batch_size=32)", "passed"),
        ("latest = DataLoader(train_set, batch_size=32)", "passed"),
    ],
)
def test_all_training_data_in_a_loader_that_is_called_validation(make, source: str, status: str) -> None:
    whole = list(range(3200))
    sites = [{"site": 2, "role": "dataloader", "file": "train.py", "line": 9, "function": "main", "source": source}]
    loaders = [TRAIN | {"made_at": None}, TRAIN | {"loader": 1}]
    process = make.process(
        loaders=loaders, more={"batches": passes(whole, whole)}, evals=make.evals() | {"losses": [0] * 4}, sites=sites
    )
    assert make.check(RULE, process)[0] == status


def test_separate_data_pass(make) -> None:
    assert judge(make, passes(list(range(3200)), list(range(3200, 4000))))[0] == "passed"


def test_blank_samples_and_few_distinct_values_are_no_evidence(make) -> None:
    blank = passes(list(range(3200)), list(range(2800, 3600)), prints="- - - -")
    assert judge(make, blank)[0] == "skipped"  # nothing identifies the samples
    grid = [index % 500 for index in range(3200)]
    status, reason, _ = judge(make, passes(grid, grid[:800]))
    assert (status, "so few are different" in reason) == ("passed", True)


def looked_at_whole(rows: list[int], held_out: int) -> list[dict[str, Any]]:
    """A split of rows, each side looked at as a whole, and the validation data in part at the end once more."""
    mixed = random.Random(0).sample(rows, len(rows))
    sides = [(0, mixed[held_out:], True), (1, mixed[:held_out], False), (2, mixed[:96], False)]
    return [
        {"loader": loader, "epoch": 0, "step": 100 * loader, "trained": trained, "field": "0", "dtype": "int64",
         "shape": f"{len(side[at : at + 32])}x10", "batch": at // 32,
         "prints": " ".join(f"s{one}" for one in side[at : at + 32])}
        for loader, side, trained in sides for at in range(0, len(side), 32)
    ]  # fmt: skip


def test_copies_that_were_made_before_the_split(make) -> None:
    """Each is there two or three times, where samples of few different ones are there once, or six times, as well."""
    loaders = [TRAIN | {"length": 30}, HELD | {"length": 5}, HELD | {"loader": 2, "length": 5, "made_at": 5}]
    copied = [one for one in range(448) for _ in range(2 + (one < 224))]
    status, _, finding = judge(make, looked_at_whole(copied, 160), loaders, loader=[1, 1, 1, 2])
    assert status == "fired"
    assert "copies before the split" in finding.summary
    drawn = random.Random(1).choices(range(448), k=len(copied))
    status, reason, _ = judge(make, looked_at_whole(drawn, 160), loaders, loader=[1, 1, 1, 2])
    assert (status, "so few are different" in reason) == ("passed", True)
    oversampled = [*range(800), *random.Random(2).choices(range(80), k=320)]
    assert judge(make, looked_at_whole(oversampled, 160), loaders, loader=[1, 1, 1, 2])[0] == "passed", "not known"


def test_evaluation_on_training_data_on_purpose(make) -> None:
    whole, part, clean = list(range(3200)), list(range(800)), list(range(5000, 5800))
    assert judge(make, passes(whole, whole), (TRAIN, HELD | {"length": 100}))[0] == "passed"
    both = passes(whole, part)
    for epoch in range(4):
        both += one_pass(2, epoch, 100 * (epoch + 1), clean, False)
    evals = make.rows([{"loader": 1 + index % 2} for index in range(8)])
    beside = make.evals(8) | evals
    process = make.process(loaders=[TRAIN, HELD, HELD | {"loader": 2}], more={"batches": both}, evals=beside)
    assert make.check(RULE, process)[0] == "passed"
    status, reason, _ = judge(make, passes(whole, part), losses=[0] * 4)  # examples are shown, nothing is measured
    assert (status, "measure of training accuracy looks the same" in reason) == ("skipped", True)
    assert judge(make, passes(whole, part))[0] == "fired"
    assert judge(make, passes(whole, part), loader=[None, 1, 1, 1])[0] == "passed"


def test_folds_of_one_model_and_splits_drawn_for_every_epoch(make) -> None:
    def run(parts: list[tuple[list[int], list[int]]], put_back: bool = False):
        rows, loaders = [], []
        for index, (training, validation) in enumerate(parts):
            shuffled = random.Random(index).sample(training, len(training))
            rows += one_pass(2 * index, 0, 100 * index, shuffled, True)
            rows += one_pass(2 * index + 1, 0, 100 * index + 100, validation, False)
            loaders += [TRAIN | {"loader": 2 * index}, HELD | {"loader": 2 * index + 1}]
        steps = make.steps() | {"loader": [2 * (index // 100) for index in range(400)]}
        if put_back:
            steps["loss"] = [1.0 - 0.008 * (index % 100) for index in range(400)]
        evals = make.evals() | {"loader": [1, 3, 5, 7]}
        return make.check(RULE, make.process(steps, loaders=loaders, more={"batches": rows}, evals=evals))

    everything = list(range(4000))
    folds = [everything[800 * k : 800 * k + 800] for k in range(4)]
    rests = [sorted(set(everything) - set(fold)) for fold in folds]
    assert run(list(zip(rests, folds, strict=True)), put_back=True)[0] == "passed", "the weights start anew"
    assert run(list(zip(rests, folds, strict=True)))[0] == "fired", "the losses go on"
    drawn = [random.Random(50 + k).sample(everything, 4000) for k in range(4)]
    assert run([(order[:3200], order[3200:]) for order in drawn])[0] == "fired"


def test_too_little_and_growing_data(make) -> None:
    rows = passes(list(range(3200)), list(range(2800, 3600)))
    assert judge(make, [row for row in rows if row["batch"] < 1])[0] == "skipped"
    assert judge(make, [row for row in rows if row["trained"]])[0] == "skipped"
    assert judge(make, [row | {"prints": None} for row in rows])[0] == "skipped"
    grown = rows + one_pass(3, 0, 50, list(range(6400)), True)
    status, reason, _ = judge(make, grown, (TRAIN, HELD, TRAIN | {"loader": 3, "length": 200}))
    assert status == "passed"
    assert "change in size" in reason


def test_of_some_passes_only_the_short_last_batch_is_looked_at(make) -> None:
    """Four samples of a batch of 32: it is the last one, and the training data have not shrunk."""
    rows = passes(list(range(3200)), list(range(2800, 3600)))
    rows += one_pass(0, 4, 400, list(range(4)), True, shape="4x10")
    status, _, finding = judge(make, rows)
    assert status == "fired"
    assert finding.evidence[1].value == pytest.approx(0.5, abs=0.15)


def test_a_small_validation_set_that_was_looked_at_whole(make) -> None:
    def whole(common: int, distinct: int = 10**6) -> Any:
        rows = []
        for epoch in range(3):
            for loader, step, first, count in ((0, 20 * epoch, 0, 320), (1, 20 * epoch + 10, 320 - common, 24)):
                rows += [
                    {"loader": loader, "epoch": epoch, "step": step, "trained": not loader, "field": "0"}
                    | {"shape": f"{min(32, count - at)}x10", "batch": at // 32, "dtype": "float32"}
                    | {"min": -3.0 - at / 999, "max": 3.0 + at / 999 + loader}
                    | {"prints": " ".join(f"s{(first + index) % distinct}" for index in range(at, min(count, at + 32)))}
                    for at in range(0, count, 32)
                ]
        return judge(make, rows, (TRAIN | {"length": 10}, HELD | {"length": 1}))

    assert whole(6)[0] == "fired"
    assert whole(0)[0] == "passed"
    assert whole(0, distinct=40)[0] == "passed"  # few different samples meet by chance


@pytest.mark.parametrize(("copied", "expected"), [(400, 0.5), (800, 1.0)])
def test_samples_that_training_holds_several_times_are_met_more_often(make, copied: int, expected: float) -> None:
    """Copies of half of the validation set in training, and of all of it.

    Each copied sample stands in training four times, so that the looks at a pass show it four times as often.
    """
    copies = [one for one in range(copied) for _ in range(4)]
    training = copies + list(range(1000, 4200 - len(copies)))
    extremes = {"dtype": "float32", "min": 0.0, "max": 0.0}
    rows = [
        row | extremes | {"min": -float(at), "max": float(at)}
        for at, row in enumerate(passes(training, list(range(800)), epochs=8))
    ]
    found, reason, finding = judge(make, rows, forwards=[25] * 4, losses=[0] * 4)
    assert found == "fired", reason
    assert finding.evidence[1].value == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("lows", "continuous"),
    [
        ([-0.01 * (at % 30) for at in range(100)], True),  # copies of samples: the same extremes again and again
        ([-0.01 * at for at in range(100)], True),
        ([-1.0 * (at % 4) for at in range(100)], False),  # a grid
        ([-0.01 * at for at in range(10)], False),  # too few to know
    ],
)
def test_what_no_two_samples_have_by_chance(lows: list[float], continuous: bool) -> None:
    passes = [overlap.Seen(0, 0, extremes=[(low, 2.0 - 3 * low) for low in lows])]
    assert overlap.continuous(passes) is continuous


def test_the_share_is_no_less_than_what_was_met() -> None:
    """Samples that are met unevenly make the estimate from the counts too small."""
    held = [f"{at}" for at in range(240)]
    passes = [overlap.Seen(0, step, held[: 209 if step < 2 else 40], [240]) for step in range(12)]
    found = overlap.compare([([overlap.Seen(1, 20, held, [240])], passes)], {0: 1, 1: 1})
    assert (found.hits, found.looked) == (209, 240)
    assert found.share == pytest.approx(209 / 240)


def test_data_that_were_repeated_before_they_were_split(make) -> None:
    """Nearly every validation sample has a copy in training: that alone would look like a measure of training."""
    repeated = random.Random(1).sample([one for one in range(500) for _ in range(8)], 4000)
    rows = [
        row | {"dtype": "float32", "min": -float(at), "max": float(at)}
        for at, row in enumerate(passes(repeated[:3200], repeated[3200:]))
    ]
    status, reason, finding = judge(make, rows, forwards=[4] * 4, losses=[0] * 4)
    assert status == "fired", reason
    assert finding.confidence == "likely"


def folds(make, start: float, four: int = 4):
    """Four folds of 800 samples with loaders of their own; `start`: the first losses of each fold after the first."""
    parts = [list(range(800 * fold, 800 * (fold + 1))) for fold in range(four)]
    loaders, rows = [], []
    for fold, held in enumerate(parts):
        rest = [one for part in parts if part is not held for one in part]
        loaders += [TRAIN | {"loader": 2 * fold, "length": 75}, HELD | {"loader": 2 * fold + 1}]
        rows += one_pass(2 * fold, 0, 100 * fold, rest, True)
        rows += one_pass(2 * fold + 1, 0, 100 * (fold + 1), held, False)
    losses = [(1.0 if step < 100 else start) if step % 100 < 5 else 0.2 for step in range(100 * four)]
    evals = make.evals() | {"loader": [2 * fold + 1 for fold in range(4)]}
    process = make.process(
        {**make.steps(100 * four), "loss": losses}, loaders=loaders, more={"batches": rows}, evals=evals
    )
    return make.check(RULE, process)


def test_one_model_that_is_trained_through_all_folds(make) -> None:
    status, _, finding = folds(make, 0.2)
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert "through 4 folds" in finding.title
    assert folds(make, 0.3)[0] == "fired", "an optimizer that is made anew"


def test_a_model_whose_weights_are_put_back_with_each_fold(make) -> None:
    assert folds(make, 1.0)[0] == "passed"
    assert folds(make, 0.6)[0] == "passed", "part of it is put back"


@pytest.mark.parametrize(
    ("common", "source", "function", "status"),
    [
        (400, "return DataLoader(self.val_set, batch_size=32)", "val_dataloader", "fired"),
        (400, "val_loader = DataLoader(val_set, batch_size=32)", "main", "fired"),
        (400, "return DataLoader(part, batch_size=32)", "get_loader", "passed"),  # nothing says what it is for
        (400, "return DataLoader(self.train_plain, batch_size=32)", "val_dataloader", "passed"),  # without its flips
        (400, "return [DataLoader(self.val), DataLoader(self.probe)]", "val_dataloader", "passed"),  # which of two?
        (800, "return DataLoader(self.val_set, batch_size=32)", "val_dataloader", "passed"),  # measures training
        (0, "return DataLoader(self.val_set, batch_size=32)", "val_dataloader", "passed"),
    ],
)
def test_a_clean_test_set_does_not_excuse_a_validation_set_that_is_partly_trained_on(
    make, common: int, source: str, function: str, status: str
) -> None:
    """The test set has its own origin, and is larger than half of the training data."""
    rows = passes(list(range(3200)), list(range(3200 - common, 4000 - common)))
    rows += one_pass(2, 0, 400, list(range(9000, 11200)), False)
    places = [(source, function), ("return DataLoader(self.test_set, batch_size=32)", "test_dataloader")]
    sites = [
        {"site": 3 + at, "role": "dataloader", "file": "t.py", "line": 9 + at, "function": name, "source": line}
        for at, (line, name) in enumerate(places)
    ]
    loaders = [TRAIN, HELD | {"made_at": 3}, HELD | {"loader": 2, "length": 69, "made_at": 4}]
    evals = make.evals() | {"loader": [1, 1, 1, 2], "losses": [25, 25, 25, 69]}
    process = make.process(loaders=loaders, more={"batches": rows}, evals=evals, sites=sites)
    assert make.check(RULE, process)[0] == status


def test_copies_before_the_split_are_named_by_their_line_and_counted_by_what_was_met(make) -> None:
    """How often copies are met says nothing of how many there are: the share is that of what was looked at."""
    draw = random.Random(0)
    data = [*range(2000), *draw.choices(range(60), k=2000)]
    draw.shuffle(data)
    held = data[3200:]
    rows = [row | {"dtype": "float32", "min": -at, "max": at} for at, row in enumerate(passes(data[:3200], held))]
    split = "train, val = random_split(x, [0.8, 0.2])"
    excerpt = f"def load():\n    x, y = read()\n    x, y = upsample_minority(x, y)\n    {split}"
    site = {"site": 5, "role": "split", "file": "t.py", "line": 13, "function": "load"}
    site |= {"source": split, "excerpt": excerpt, "excerpt_line": 10}
    process = make.process(loaders=[TRAIN, HELD], more={"batches": rows}, evals=make.evals(), sites=[site])
    status, reason, finding = make.check(RULE, process)
    assert status == "fired", reason
    looked = len({held[at + place] for at in range(0, 800, 32) for place in range(8)})
    assert finding.evidence[1].value == pytest.approx(finding.evidence[0].value / looked)
    assert "copies before the split" in finding.summary
    assert (finding.location.line, finding.seen_at.line) == (12, 13)


def number_of(finding, name: str) -> float:
    return float(next(one.value for one in finding.evidence if one.name == name))


@pytest.mark.parametrize("repeats", [True, False])
def test_fewer_copies_are_told_where_a_line_above_the_split_draws_them(make, repeats: bool) -> None:
    draw = random.Random(0)
    data = [*range(3000), *draw.choices(range(60), k=1000)]
    draw.shuffle(data)
    rows = passes(data[:3200], data[3200:])
    rows = [row | {"dtype": "float32", "min": -at, "max": at} for at, row in enumerate(rows)]
    split = "train_df, val_df = train_test_split(df, stratify=df.failed)"
    excerpt = f"def load():\n    df = read()\n    df = balance(df)\n    {split}"
    sites = [{"site": 5, "role": "split", "file": "t.py", "line": 13, "function": "load", "source": split}]
    sites[0] |= {"excerpt": excerpt, "excerpt_line": 10}
    source = f"more = resample(failed, replace={repeats})"
    sites.append({"site": 6, "role": "repeats", "file": "t.py", "line": 3, "function": "balance", "source": source})
    process = make.process(loaders=[TRAIN, HELD], more={"batches": rows}, evals=make.evals(), sites=sites)
    status, reason, finding = make.check(RULE, process)
    assert status == "fired", reason
    assert ("copies before the split" in finding.summary) == repeats
    met = number_of(finding, "validation samples met in training") / 184
    assert number_of(finding, "share trained on") == pytest.approx(met), "equal samples are met more often than others"
    assert ("At least 21% of the validation samples checked" in finding.title) == (not repeats)
    if repeats:
        assert finding.location.line == 12
        assert finding.fix_code == f"{split}\ntrain_df = balance(train_df)  # these alone"


@pytest.mark.parametrize(
    ("copies", "code"),
    [
        ("df = oversample(rows)", "train = oversample(train)"),
        ("df = oversample(rows, 3)", "train = oversample(train, 3)"),
        ("df = oversample(rows, labels)", ""),
        ("df = make_balanced(rng)", ""),
        ("df = oversample(load())", ""),
    ],
)
def test_a_split_of_what_the_copies_are_made_of(make, copies: str, code: str) -> None:
    split = "train, val = train_test_split(df, stratify=df.y)"
    site = {"site": 5, "role": "split", "file": "t.py", "line": 12, "function": "load", "source": split}
    site |= {"excerpt": f"def load():\n    {copies}\n    {split}", "excerpt_line": 10}
    process = make.process(sites=[site])
    place = process.site(5)
    shown = f"train, val = train_test_split(rows, stratify=rows.y)\n{code}  # these alone" if code else ""
    assert split_copies.split_first(process, place, split_copies.made_above(process, place)) == shown


@pytest.mark.parametrize("split", ["a, c, b, d = train_test_split(x, y)", "a, c, b, d = divide(x, y)"])
def test_a_split_of_several_names_side_by_side(make, split: str) -> None:
    """What train_test_split gives first of each is the training part; of another function that is not known."""
    site = {"site": 5, "role": "split", "file": "t.py", "line": 12, "function": "load", "source": split}
    site |= {"excerpt": f"def load():\n    x, y = oversample(x, y)\n    {split}", "excerpt_line": 10}
    process = make.process(sites=[site])
    place = process.site(5)
    shown = f"{split}\na, b = oversample(a, b)  # these alone" if "train_test" in split else ""
    assert split_copies.split_first(process, place, split_copies.made_above(process, place)) == shown


@pytest.mark.parametrize(
    ("copies", "split", "code"),
    [
        ("x, y = oversample(x, y, rng)", "(a, b), (c, d) = split(x, y, 0.25)", "a, b = oversample(a, b, rng)"),
        ("x, y = oversample(x, y)", "a, c, b, d = split(x, y)", ""),  # in which order is not known
        ("x, y = oversample(x, y)", "(a, b), (c, d) = split(data)", ""),
        ("x = oversample(x)", "train, val = split(x, rng)", "train = oversample(train)"),
        ("x, y = fetch(x, y)", "(a, b), (c, d) = split(x, y, 0.25)", None),
    ],
)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_split_in_a_function_of_its_own(make, copies: str, split: str, code: str | None, calls: int) -> None:
    """The copies are made above the line that calls it, if there is one alone."""
    own = {"site": 5, "role": "split", "file": "t.py", "line": 3, "function": "split"}
    own |= {"source": "order = rng.permutation(len(y))"}
    excerpt = f"    {copies}\n    {split}"
    call = {"role": "split-call", "file": "t.py", "function": "main", "line": 12, "source": split}
    sites = [own, {"site": 6, **call, "excerpt": excerpt, "excerpt_line": 11}]
    sites += [{"site": 7, **call, "function": "test", "line": 30}] * (calls - 1)
    process = make.process(sites=sites)
    place = process.site(5)
    found = split_copies.made_above(process, place)
    assert (found.line if found is not None else None) == (11 if code is not None and calls == 1 else None)
    if found is not None:
        shown = split_copies.split_first(process, split_copies.beside(process, place, found), found)
        assert shown == (f"{split}\n{code}  # these alone" if code else "")


SPLITTING = """\
def load_split(data, part):
    parts = data.train_test_split(test_size=0.2)
    return parts[part]

train = load_split(data, "train")
held = load_split(data, "validation")
"""


def of_split(make, text: str) -> Any:
    """The finding where a quarter of the validation set is trained on, and the script reads so."""
    rows = passes(list(range(3200)), list(range(3000, 3800)))
    number, line = next((at, one) for at, one in enumerate(text.split("\n"), 1) if "split(" in one and "def" not in one)
    site = {"site": 5, "role": "split", "file": "t.py", "line": number, "function": "load_split"}
    site |= {"source": line.strip(), "excerpt": text, "excerpt_line": 1}
    return judge_sites(make, rows, [site])


def judge_sites(make, rows, sites) -> Any:
    process = make.process(loaders=[TRAIN, HELD], more={"batches": rows}, evals=make.evals(), sites=sites)
    return make.check(RULE, process)[2]


@pytest.mark.parametrize(
    ("call", "edited"),
    [
        ("data.train_test_split(test_size=0.2)", "data.train_test_split(test_size=0.2, seed=0)"),
        ("train_test_split(data, test_size=0.2)", "train_test_split(data, test_size=0.2, random_state=0)"),
        ("random_split(data, [8, 2])", "random_split(data, [8, 2], generator=torch.Generator().manual_seed(0))"),
    ],
)
def test_a_function_that_splits_anew_at_each_call_is_given_a_seed(make, call: str, edited: str) -> None:
    finding = of_split(make, SPLITTING.replace("data.train_test_split(test_size=0.2)", call))
    assert finding.diff.added == [f"    parts = {edited}"]
    assert finding.fix.startswith("Line 2 draws another split at each call of load_split (lines 5 and 6)")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("test_size=0.2)", "test_size=0.2, seed=seed)"),
        ("test_size=0.2)", "test_size=0.2, shuffle=False)"),
        ('held = load_split(data, "validation")', "held = load_held()"),  # called once: copies, or another cause
        ('held = load_split(data, "validation")', 'held = load_split(others, "validation")'),
        ('held = load_split(data, "validation")', 'held = load_split(data, "train")'),
        ('data, "validation")', 'data, "c.csv")'),
    ],
)
def test_a_split_with_a_seed_or_for_one_call_is_not_drawn_anew(make, old: str, new: str) -> None:
    finding = of_split(make, SPLITTING.replace(old, new))
    assert finding.diff is None
    assert finding.fix.startswith("Split once, by sample")


HALVES = """\
    def split(self):
        return random_split(self.full, [80, 20])

    def train_dataloader(self):
        train, _ = self.split()

    def val_dataloader(self):
        _, held = self.split()
"""


@pytest.mark.parametrize(
    ("old", "new", "anew"),
    [
        ("", "", True),
        ("_, held = self.split()", "return loader(self.split()[1], text.split()[0])", True),
        ("_, held = self.split()", "train, held = self.split()", False),  # as in rounds of a cross-validation
        ("_, held = self.split()", "self.others, _ = self.split()", False),
        ("_, held = self.split()", "_, held = self.split(self.other)", False),
        ("_, held = self.split()", "held = self.held", False),
    ],
)
def test_two_calls_of_a_split_that_take_a_part_each(make, old: str, new: str, anew: bool) -> None:
    text = HALVES.replace(old, new) if old else HALVES
    site = {"site": 5, "role": "split", "file": "t.py", "line": 2, "function": "split", "excerpt": text}
    site |= {"source": "return random_split(self.full, [80, 20])", "excerpt_line": 1}
    finding = judge_sites(make, passes(list(range(3200)), list(range(3000, 3800))), [site])
    assert (finding.diff is not None) is anew
    assert finding.fix.startswith("Line 2 draws another split at each call of split (lines 5 and 8)") is anew


SETUP = """\
    def setup(self, stage=None):
        self.train_set, self.val_set = random_split(self.full, [80, 20])
"""


@pytest.mark.parametrize(
    ("text", "reads", "edited"),
    [
        (SETUP, "trainer.test(net, datamodule=data)", True),
        (SETUP, "trainer.fit(net, datamodule=data)", False),  # within fit() it is called once
        (
            SETUP.replace("        self", "        if stage == 'fit':\n            self"),
            "trainer.test(net, data)",
            False,
        ),
        (SETUP.replace("20])", "20], generator=self.generator)"), "trainer.test(net, datamodule=data)", False),
    ],
)
def test_a_data_module_that_splits_for_each_stage_is_given_a_seed(make, text: str, reads: str, edited: bool) -> None:
    rows = passes(list(range(3200)), list(range(3000, 3800)))
    where = {"file": "t.py", "excerpt": text, "excerpt_line": 1}
    number, line = next((at, one) for at, one in enumerate(text.split("\n"), 1) if "random_split(" in one)
    sites = [where | {"site": 5, "role": "split", "line": number, "function": "setup", "source": line.strip()}]
    runs = {"role": "loader", "file": "t.py", "function": "main"}
    sites += [runs | {"site": 6, "line": 30, "source": "trainer.fit(net, datamodule=data)"}]
    sites += [
        runs | {"site": 7, "line": 31, "source": reads if "test" in reads else "trainer.test(net, datamodule=data)"}
    ]
    loaders = [TRAIN | {"site": 6}, HELD | {"site": 7 if "test" in reads else 6}]
    process = make.process(loaders=loaders, more={"batches": rows}, evals=make.evals(), sites=sites)
    finding = make.check(RULE, process)[2]
    assert (finding.diff is not None) is edited
    assert ("as fit() and test() do" in finding.fix) is edited
