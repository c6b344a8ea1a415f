"""train-validation-overlap, of batches that no loader makes and of folds."""

from __future__ import annotations

import random

import pytest

RULE = "train-validation-overlap"


def looked_at(training, held_out, epochs=4, every=20, loader=None):
    """Batches of 40 rows, all looked at; a pass over the held-out rows in one call after each epoch."""
    rows, at = [], 0
    row = {"loader": loader, "epoch": 0, "field": "0", "dtype": "float32"}
    for epoch in range(epochs):
        order = random.Random(epoch).sample(training, len(training))
        for first in range(0, len(order), 40):
            part = order[first : first + 40]
            rows.append(row | {"step": at, "batch": at, "trained": True, "shape": "40x8", "time": at + 0.5,
                               "prints": " ".join(f"s{one}" for one in part),
                               "min": -3.0 - min(part) / 1e4, "max": 3.0 + max(part) / 1e4})  # fmt: skip
            at += 1
        rows.append(row | {"step": at, "batch": at, "trained": False, "shape": f"{len(held_out)}x8",
                           "time": at + 0.1, "prints": " ".join(f"s{one}" for one in held_out)})  # fmt: skip
    return rows


def run(make, rows, evals=None, **change):
    steps = make.steps(80) | {"loader": [None] * 80, "batch_size": [40] * 80}
    after = [20, 40, 60, 80]
    found = make.evals(4, 20) | {"loader": [None] * 4, "samples": [200] * 4, "forwards": [1] * 4, "site": [3] * 4,
                                 "after_step": after, "time_start": [float(one) for one in after],
                                 "time_end": [one + 0.05 for one in after]}  # fmt: skip
    return make.process(steps, evals=found | (evals or {}), loaders=[], more={"batches": rows}, **change)


@pytest.mark.parametrize("common", [50, 100, 160])
def test_indices_that_overlap(make, common) -> None:
    rows = looked_at(list(range(800)), list(range(800 - common, 1000 - common)))
    status, _, finding = make.check(RULE, run(make, rows))
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert f"About {common / 2:.0f}%" in finding.title


@pytest.mark.parametrize(
    ("held_out", "evals", "status"),
    [
        (range(800, 1000), {}, "passed"),
        (range(795, 995), {}, "passed"),  # a few equal samples
        (range(200), {}, "skipped"),  # training accuracy, on a part of the data
        (range(700, 900), {"samples": [900] * 4}, "skipped"),  # all data at once, as of a graph
    ],
)
def test_what_looks_like_it(make, held_out, evals, status) -> None:
    assert make.check(RULE, run(make, looked_at(list(range(800)), list(held_out)), evals))[0] == status


def test_a_part_of_the_training_data_is_measured_beside_a_clean_set(make) -> None:
    rows = looked_at(list(range(800)), list(range(700, 900)))
    for row in rows:
        if not row["trained"] and row["step"] > 40:
            row["prints"] = " ".join(f"s{one}" for one in range(900, 1100))
    assert make.check(RULE, run(make, rows))[0] == "passed"


def test_values_that_are_equal_by_chance(make) -> None:
    rows = [row | {"dtype": "int64"} for row in looked_at(list(range(800)), list(range(700, 900)))]
    assert make.check(RULE, run(make, rows))[0] == "skipped"


def copied_first(rare, held_rows, total=600):
    """Rows of which `rare` samples stand four times, in one order: the last `held_rows` rows are held out."""
    rows = [one for one in range(total) for _ in range(4 if one < rare else 1)]
    order = random.Random(7).sample(rows, len(rows))
    return order[held_rows:], order[:held_rows]


def test_copies_of_a_rare_class_are_on_both_sides_of_a_split(make) -> None:
    """Common samples have no copy: they are on one side. The others are met far more often than one in a share."""
    training, held_out = copied_first(150, 250)
    truth = len(set(held_out) & set(training)) / len(set(held_out))
    rows = looked_at(training, held_out)
    rows = [row for row in rows if not row["trained"] or row["batch"] % 5]  # most batches were looked at
    status, _, finding = make.check(RULE, run(make, rows, {"samples": [250] * 4}))
    assert status == "fired"
    share = int(finding.title.split("%")[0].removeprefix("About "))
    assert abs(share / 100 - truth) < 0.1


def test_training_accuracy_on_a_part_of_evened_data(make) -> None:
    training, _ = copied_first(150, 250)
    rows = looked_at(training, random.Random(3).sample(training, 250))
    rows = [row for row in rows if not row["trained"] or row["batch"] % 5]
    status, reason, _ = make.check(RULE, run(make, rows, {"samples": [250] * 4}))
    assert (status, "may all be trained on" in reason) == ("skipped", True)


def test_copies_that_only_the_training_data_show(make) -> None:
    """Few samples of a pass that is looked at in part have an equal one in it; training meets them again and again."""
    training, held_out = copied_first(150, 250)
    seen = list(dict.fromkeys(held_out))[:90]
    truth = len(set(seen) & set(training)) / len(seen)
    rows = looked_at(training, seen)
    rows = [row for row in rows if not row["trained"] or row["batch"] % 5]
    status, _, finding = make.check(RULE, run(make, rows, {"samples": [250] * 4}))
    assert status == "fired"
    assert abs(int(finding.title.split("%")[0].removeprefix("About ")) / 100 - truth) < 0.12


@pytest.mark.parametrize(("later", "status"), [(range(800, 808), "fired"), (range(2000, 2008), "skipped")])
def test_a_set_is_looked_at_closely_once(make, later, status) -> None:
    """Before anything is trained on, say; of later passes a few samples tell whether it is the same set."""
    held_out = list(range(700, 900))
    rows = looked_at(list(range(800)), held_out)
    rows = [row for row in rows if not row["trained"] or row["step"] >= 20]
    for row in rows:
        if not row["trained"] and row["step"] > 20:
            row["prints"] = " ".join(f"s{one}" for one in later)
    assert make.check(RULE, run(make, rows))[0] == status


CALLED = """\
def main():
    x, y = load()
    x, y = oversample(x, y)
    (xt, yt), (xv, yv) = divide(x, y, 0.2)
    train(xt, yt)"""


@pytest.mark.parametrize("copies", [True, False])
def test_the_line_that_copies_before_a_split_is_the_one_to_move(make, copies) -> None:
    rows = looked_at(*copied_first(150, 250)) if copies else looked_at(list(range(800)), list(range(700, 900)))
    rows = [row for row in rows if not row["trained"] or row["batch"] % 5]
    main = {"file": "t.py", "function": "main", "excerpt": CALLED, "excerpt_line": 1}
    split = {"site": 3, "role": "split", "file": "t.py", "line": 20, "function": "divide"}
    sites = [
        main | {"site": 2, "role": "split-call", "line": 4, "source": CALLED.splitlines()[3].strip()},
        split | {"source": "order = torch.randperm(len(x), generator=gen)"},
    ]
    _, _, finding = make.check(RULE, run(make, rows, {"samples": [250] * 4}, sites=sites))
    assert finding.location.line == (3 if copies else 20)
    assert ("Line 3 makes copies before the data are split." in finding.summary) is copies
    assert finding.fix_code.endswith("xt, yt = oversample(xt, yt)  # these alone") is copies
