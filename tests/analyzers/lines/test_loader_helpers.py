"""Loaders that functions of the script's own make, and the calls that decide how."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.script.editing import loader_arguments

HEAD = "def make_loader(dataset, batch_size, shuffle=False, drop_last=False):"
MADE = "    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, drop_last=drop_last)"


def made_by(make: Any, call: str, head: str = HEAD, made: str = MADE, others: bool = False) -> Any:
    """A process whose training loader is made in line 11, by a function that line 31 calls."""
    function = head.partition("(")[0].split()[-1]
    body = [head, *made.split("\n")]
    rows = [
        {"site": 1, "role": "dataloader", "line": 9 + len(body), "function": function, "source": body[-1].strip()}
        | {"excerpt": "\n".join(body), "excerpt_line": 10},
        {"site": 2, "role": "loader-call", "line": 31, "function": "main", "source": call}
        | {"excerpt": f"    {call}", "excerpt_line": 31},
    ]
    loaders = [
        {"loader": 0, "dataset": "Clips", "sampler": "SequentialSampler", "batch_size": 32, "made_at": 1}
        | {"called_at": 2},
        {"loader": 1, "dataset": "Clips", "sampler": "SequentialSampler", "batch_size": 32, "made_at": 1}
        | {"called_at": 2 if others else None},
    ]
    return make.process(loaders=loaders, sites=[{"file": "train.py", **row} for row in rows])


@pytest.mark.parametrize(
    ("call", "head", "added"),
    [
        (
            "train = make_loader(data, 32, drop_last=True)",
            HEAD,
            "train = make_loader(data, 32, drop_last=True, shuffle=True)",
        ),
        ("train = make_loader(data, 32, False)", HEAD, "train = make_loader(data, 32, True)"),
        ("train = make_loader(data, 32, shuffle=False)", HEAD, "train = make_loader(data, 32, shuffle=True)"),
        (
            "train = self.make_loader(data, 32, False)",
            "    def make_loader(self, dataset, batch_size, shuffle=False, drop_last=False):",
            "train = self.make_loader(data, 32, True)",
        ),
        (
            "train = make_loader(data, 32)",
            "def make_loader(dataset, batch_size, *, shuffle=False, drop_last=False):",
            "train = make_loader(data, 32, shuffle=True)",
        ),
    ],
)
def test_the_call_that_leaves_a_helper_in_order_is_changed(make: Any, call: str, head: str, added: str) -> None:
    process = made_by(make, call, head, MADE if head[0] == "d" else f"    {MADE}")
    (loader, _) = process.loaders.records()
    _, code, diff, place, setting = loader_arguments.shuffling(process, loader, [0])
    assert (diff.line, diff.added, code, place.line, setting) == (31, [f"    {added}"], added, 31, None)


def test_a_call_that_asks_for_the_validation_too_or_says_more_is_only_named(make: Any) -> None:
    for call, others in (
        ("for data in both: loaders.append(make_loader(data, 32))", True),
        ("train = make_loader(data, 32, shuffle=args.shuffle)", False),
        ("train = make_loader(data, **options)", False),
    ):
        process = made_by(make, call, others=others)
        (loader, _) = process.loaders.records()
        shuffling = loader_arguments.shuffling(process, loader, [0])
        assert (shuffling.place.line, shuffling.diff) == (31, None)


OPTIONS = "def make_loader(dataset, seed, **options):"
HANDED_ON = "    return DataLoader(Clips(dataset, seed), batch_size=32, **options)"


def test_options_that_are_handed_on_are_given_where_the_training_asks_for_its_loader(make: Any) -> None:
    """The line that makes both loaders would shuffle the validation data, too."""
    process = made_by(make, "train = make_loader(data, 1, drop_last=True)", OPTIONS, HANDED_ON)
    (loader, _) = process.loaders.records()
    _, code, diff, place, _ = loader_arguments.shuffling(process, loader, [0])
    added = "train = make_loader(data, 1, drop_last=True, shuffle=True)"
    assert (place.line, diff.line, diff.added, code) == (31, 31, [f"    {added}"], added)


@pytest.mark.parametrize(
    ("call", "made", "others"),
    [
        ("train = make_loader(data, 1, **more)", HANDED_ON, False),
        ("train = make_loader(data, 1, sampler=drawn)", HANDED_ON, False),
        ("train = make_loader(data, 1, shuffle=args.shuffle)", HANDED_ON, False),
        ("for data in both: loaders.append(make_loader(data, 1))", HANDED_ON, True),
        ("train = make_loader(data, 1)", f"    options.pop('shuffle', None)\n{HANDED_ON}", False),
        ("train = make_loader(data, 1)", HANDED_ON.replace("**options", "**DEFAULTS"), False),
    ],
)
def test_options_that_are_decided_elsewhere_are_not_added(make: Any, call: str, made: str, others: bool) -> None:
    process = made_by(make, call, OPTIONS, made, others)
    (loader, _) = process.loaders.records()
    shuffling = loader_arguments.shuffling(process, loader, [0])
    assert shuffling.diff is None
    assert shuffling.place.line != 31


def test_a_parameter_of_another_name_gives_an_example(make: Any) -> None:
    head, made = "def make_loader(dataset, train=False):", "    return DataLoader(dataset, 32, train)"
    process = made_by(make, "train = make_loader(data)", head, made)
    (loader, _) = process.loaders.records()
    shuffling = loader_arguments.shuffling(process, loader, [0])
    assert (shuffling.code, shuffling.diff) == ("train = make_loader(data, train=True)", None)


@pytest.mark.parametrize(
    ("head", "made"),
    [
        (HEAD, "    return DataLoader(dataset, batch_size=batch_size)"),  # takes none
        (HEAD, "    return DataLoader(dataset, batch_size=batch_size, shuffle=False)"),
        (HEAD, "    shuffle = False\n    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle)"),
        ("def make_loader(dataset, batch_size):", "    return DataLoader(dataset, batch_size, shuffle)"),  # a global
    ],
)
def test_a_helper_that_decides_by_itself_is_the_place(make: Any, head: str, made: str) -> None:
    process = made_by(make, "train = make_loader(data, 32)", head, made)
    (loader, _) = process.loaders.records()
    assert loader_arguments.shuffling(process, loader, [0]).place.line == 10 + made.count("\n") + 1
