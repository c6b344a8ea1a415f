"""no-shuffle by the labels that reach a loss: sorted, or by a sampler of the script, and orders that are right."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.analyzers.loss_calls import calls
from tracelyze.analyzers.rules.data.no_shuffle import drawn_orders, label_order


def test_labels_of_batches_are_shown_as_a_range_only_where_they_differ() -> None:
    rows = [{"target_lowest": 0.0, "target_highest": 0.0}, {"target_lowest": 1.0, "target_highest": 2.0}]
    assert label_order.shown(rows) == "0, 1 to 2"


def test_labels_of_sorted_batches_are_shown_in_the_order_of_a_pass(make) -> None:
    """Batches of several passes were looked at: by their steps, the labels would seem to come back."""
    loader = {"loader": 0, "iterable": False, "dataset": "Leaves", "site": 2, "sampler": "SequentialSampler"}

    def said(**columns: Any) -> str:
        labels = [(row["step"] % 120) // 20 for row in calls(24)]
        rows = [
            row | {"loader": 0, "target_lowest": label, "target_highest": label}
            for row, label in zip(calls(24), labels, strict=True)
        ]
        process = make.process(make.steps() | columns, loaders=[loader], more={"loss_calls": rows})
        return str(make.check("no-shuffle", process)[2].summary)

    twice = said(loader=[0] * 400, loader_first=[index % 120 == 0 for index in range(400)])
    assert "most batches hold one of them (labels of some batches, in the order of a pass: 0, 1, 3, 4)" in twice
    unknown = said(loader=[0] * 400, loader_first=[False] * 400)
    assert "(labels of some batches, by step: 0, 3, 0, 3)" in unknown


def test_sorted_labels_without_shuffling(make) -> None:
    loader = {"loader": 0, "iterable": False, "dataset": "Leaves", "site": 2}

    def outcome(lowest: list[int], highest: list[int], sampler: str = "SequentialSampler") -> str:
        rows = [
            row | {"loader": 0, "target_lowest": low, "target_highest": high}
            for row, low, high in zip(calls(24), lowest, highest, strict=True)
        ]
        once = make.steps() | {"loader_first": [index == 0 for index in range(400)]}
        process = make.process(once, loaders=[loader | {"sampler": sampler}], more={"loss_calls": rows})
        return str(make.check("no-shuffle", process)[0])

    climbing = [index // 4 for index in range(24)]
    assert outcome(climbing, climbing) == "fired"
    assert outcome([0] * 12 + [1] * 12, [0] * 11 + [1] * 13) == "fired"
    assert outcome([0] * 11 + [1] * 12 + [2], [0] * 11 + [1] * 12 + [2]) == "fired", "looked at only in the beginning"
    assert outcome(climbing, climbing, "RandomSampler") == "passed"
    assert outcome([0] * 24, [5] * 24) == "passed", "mixed"
    assert outcome([0] * 24, [0] * 20 + [1] * 4) == "skipped", "a rare class, or the first of two"
    assert outcome([0] * 24, [0] * 24) == "skipped", "one class, or the first of several"


@pytest.mark.parametrize(
    ("line", "given", "edited"),
    [
        (
            "sampler = DistributedSampler(data, num_replicas=world, shuffle=False)",
            "sampler",
            "sampler = DistributedSampler(data, num_replicas=world, shuffle=True)",
        ),
        (
            "valid = DistributedSampler(held, shuffle=False)\n    train = DistributedSampler(data, world, rank, False)",
            "train",
            "train = DistributedSampler(data, world, rank, True)",
        ),
        ("sampler, held_out = samplers(data)", "sampler", "sampler = DistributedSampler(data, shuffle=True)"),
    ],
)
def test_sorted_labels_that_the_sampler_of_a_rank_keeps(make, line: str, given: str, edited: str) -> None:
    made = f"loader = DataLoader(data, sampler={given})"
    excerpt = f"def loaders(data, world, rank):\n    {line}\n    {made}"
    site = {"site": 70, "role": "dataloader", "file": "ddp.py", "line": 2 + excerpt.count("\n"), "source": made}
    site |= {"function": "loaders", "excerpt": excerpt, "excerpt_line": 2}
    loader = {"loader": 0, "iterable": False, "dataset": "Leaves", "site": 2, "made_at": 70, "shuffled": False}
    loader |= {"sampler": "DistributedSampler", "length": 24}
    rows = [row | {"loader": 0, "target_lowest": at // 4} for at, row in enumerate(calls(24))]
    rows = [row | {"target_highest": row["target_lowest"]} for row in rows]
    once = make.steps() | {"loader_first": [index == 0 for index in range(400)]}

    def judged(**more: Any) -> Any:
        process = make.process(once, loaders=[loader | more], more={"loss_calls": rows}, sites=[site])
        return make.check("no-shuffle", process)

    finding = judged()[2]
    assert edited in finding.fix_code
    assert "sampler.set_epoch(epoch)" in finding.fix_code
    assert finding.diff is None, "a line that makes loaders of other data, too"
    assert finding.location.source.partition("(")[0] == (made if "samplers" in line else edited).partition("(")[0]
    assert judged(shuffled=True)[0] == "passed"


@pytest.mark.parametrize(
    ("labels", "more", "fires"),
    [
        ([0] * 8 + [1] * 8 + [2] * 5 + [0] * 3, {}, True),  # the first pass, and looks at later ones
        ([0] * 8 + [1] * 8 + [2] * 8, {}, False),  # one task after the other
        ([0] * 9 + [1] * 9 + [0] * 6, {}, False),  # a discriminator's two targets
        ([0, 1, 2, 3] * 6, {}, False),  # classes take turns
        ([0] * 8 + [1] * 8 + [2] * 5 + [0] * 3, {"target_highest": 5}, False),  # mixed
        ([0] * 8 + [1] * 8 + [2] * 5 + [0] * 3, {"target_shape": "64x16"}, False),  # a class for each element
        ([0] * 8 + [1] * 8 + [2] * 5 + [0] * 3, {"target_shape": "4"}, False),  # few samples are alike by chance
        ([0] * 8 + [1] * 8 + [2] * 5 + [0] * 3, {"step": 3}, False),  # several batches a step: balanced by hand
        ([-100] * 24, {}, False),
    ],
)
def test_sorted_labels_without_a_loader(make, labels: list[int], more: dict[str, Any], fires: bool) -> None:
    pure = {"target_integer": True, "target_shape": "64"}
    rows = [
        row | {"loader": None, "step": at, "target_lowest": label, "target_highest": label} | pure | more
        for at, (row, label) in enumerate(zip(calls(24), labels, strict=True))
    ]
    answer = make.check("no-shuffle", make.process(loaders=[], more={"loss_calls": rows}))
    if fires:
        assert (answer[0], answer[2].severity, answer[2].confidence) == ("fired", "critical", "likely")
        assert "randperm" in answer[2].fix_code
    else:
        assert answer[:2] == ("skipped", "The run uses no DataLoader.")


@pytest.mark.parametrize(("field", "status"), [("target", "fired"), ("mixed", "passed"), ("index", "skipped")])
def test_labels_are_also_told_by_the_batches_that_were_handed_out(make, field: str, status: str) -> None:
    """Losses are looked at in the first steps, all of the first class; batches all over the pass."""
    loader = {"loader": 0, "iterable": False, "dataset": "Leaves", "site": 2, "sampler": "SequentialSampler"}
    given = {"target": lambda at: [at // 20], "mixed": lambda at: [0, 5] if at > 10 else [0], "index": lambda at: [at]}
    losses = [
        row | {"loader": 0, "step": at, "target_lowest": 0, "target_highest": 0} for at, row in enumerate(calls(12))
    ]
    looks = {at: json.dumps(dict.fromkeys(given[field](at), 8)) for at in range(0, 120, 2)}
    batches = [
        {"step": at, "loader": 0, "trained": True, "field": "1", "classes": classes} for at, classes in looks.items()
    ]
    once = make.steps() | {"loader_first": [index == 0 for index in range(400)]}
    process = make.process(once, loaders=[loader], more={"loss_calls": losses, "batches": batches})
    assert make.check("no-shuffle", process)[0] == status
    process = make.process(loaders=[loader], more={"loss_calls": losses, "batches": batches})  # four epochs
    severity = "critical" if status == "fired" else "info"
    assert make.check("no-shuffle", process)[2].severity == severity


def drawn_by_a_sampler(make: Any, order: list[int], early: int = 0, passes: int = 3, **more: Any) -> Any:
    """Epochs of batches with these labels, by a sampler of the script. `early`: batches ahead of the step."""
    loader = {"loader": 0, "iterable": False, "dataset": "Leaves", "site": 2, "sampler": "Drawn", "length": len(order)}
    known = {"loader": 0, "target_integer": True, "target_shape": "64"}
    losses = [
        row | known | {"step": at, "target_lowest": order[at], "target_highest": order[at]}
        for at, row in enumerate(calls(min(12, len(order))))
    ]
    batches = [
        {"step": epoch * len(order) + at - early * (at > 0), "epoch": epoch, "batch": at, "loader": 0, "trained": True,
         "field": "1", "classes": json.dumps({label: 64})} | more
        for epoch in range(passes) for at, label in enumerate(order) if epoch == 0 or at < 6
    ]  # fmt: skip
    return make.check("no-shuffle", make.process(loaders=[loader], more={"loss_calls": losses, "batches": batches}))


def test_sorted_labels_by_a_sampler_of_the_script(make) -> None:
    blocks = [0] * 5 + [2] * 6 + [1] * 5
    status, _, finding = drawn_by_a_sampler(make, blocks)
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert drawn_by_a_sampler(make, blocks, early=1)[0] == "fired", "the loader is asked for its batches one step early"
    assert drawn_by_a_sampler(make, blocks, passes=1)[0] == "passed", "tasks, each of which may be over for good"
    assert drawn_by_a_sampler(make, [0, 2, 1, 1] * 4)[0] == "passed", "blocks of one class in a mixed order"
    assert drawn_by_a_sampler(make, [0] * 14 + [1, 2])[0] == "passed", "rare classes"
    assert drawn_by_a_sampler(make, blocks, classes=json.dumps({0: 32, 1: 32}))[0] == "passed", "mixed"


@pytest.mark.parametrize(
    ("line", "edit"),
    [
        ("rng.permutation(order)", "order = rng.permutation(order)"),
        ("torch.randperm(len(order))", ""),
        ("order = rng.permutation(order)", None),
    ],
)
def test_an_order_that_is_drawn_and_thrown_away(make, line: str, edit: str | None) -> None:
    site = {"site": 9, "role": "split", "file": "a.py", "line": 4, "function": "__iter__", "source": line}
    site |= {"excerpt_line": 4, "excerpt": f"        {line}\n        return iter(order)"}
    found = drawn_orders.thrown_away(make.process(sites=[site]))
    assert (found is None) == (edit is None)
    if found is not None:
        assert [text.strip() for text in found[1].added] == [edit] if found[1] is not None else not edit
