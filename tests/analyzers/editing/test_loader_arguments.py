"""Edits that have a loader shuffle: only where torch takes that, and nothing else is made by the line."""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from tests.analyzers.sites import applied, sites_of
from tracelyze.analyzers.context import narrowed
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.diagnosis import Exit

LOADER = {"loader": 0, "made_at": 1, "batch_size": 8}


def recorded(make: Any, call: str, loaders: int = 1, below: str = "") -> tuple[Any, str]:
    """A run whose line makes these loaders, of which the first one trains; and its script."""
    source = f"def make(data):\n    loader = {call}\n{below}    return loader\n"
    rows = [LOADER | {"loader": number} for number in range(loaders)]
    return make.process(sites=sites_of(source, dataloader="loader =", loader="return loader"), loaders=rows), source


@pytest.mark.parametrize(
    ("call", "repaired"),
    [
        ("DataLoader(data, batch_size=8)", "DataLoader(data, batch_size=8, shuffle=True)"),
        ("DataLoader(data, 8, shuffle=False)", "DataLoader(data, 8, shuffle=True)"),
        ("DataLoader(data, 8, False, None)", "DataLoader(data, 8, True, None)"),
        ("DataLoader(data, 8, sampler=None)", "DataLoader(data, 8, sampler=None, shuffle=True)"),
        ("DataLoader(data, sampler=SequentialSampler(data))", "DataLoader(data, shuffle=True)"),
        ("DataLoader(data, 8, False, SequentialSampler(data))", None),
        ("DataLoader(data, sampler=SequentialSampler(range(8)))", None),
        ("DataLoader(data, sampler=sampler)", None),
        ("DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 8, False))", None),
        ("DataLoader(data, shuffle=shuffle)", None),
        ("DataLoader(data, shuffle=args.shuffle)", None),
    ],
)
def test_only_a_loader_that_takes_it_is_told_to_shuffle(make, call: str, repaired: str | None) -> None:
    process, source = recorded(make, call)
    diff = loader_arguments.shuffled(process, LOADER, training=[0])
    if repaired is None:
        assert diff is None
        return
    assert f"    loader = {repaired}\n" in applied(source, diff)
    names = {"BatchSampler": BatchSampler, "SequentialSampler": SequentialSampler, "DataLoader": DataLoader}
    made: dict[str, Any] = {}
    exec(applied(source, diff), names, made)
    assert type(made["make"](list(range(16))).sampler).__name__ == "RandomSampler"


def test_a_line_that_makes_the_loader_of_the_validation_too_is_left_alone(make) -> None:
    process, _ = recorded(make, "DataLoader(data, batch_size=8)", loaders=2)
    assert loader_arguments.shuffled(process, LOADER, training=[0]) is None
    assert loader_arguments.shuffled(process, LOADER, training=[0, 1]), "made anew for each epoch"


@pytest.mark.parametrize(
    ("call", "below", "expected"),
    [
        ("DataLoader(data, sampler=sampler)", "", True),
        ("DataLoader(data, 8, False, sampler)", "", True),
        ("DataLoader(", "        data, sampler=sampler\n    )\n", True),
        ("DataLoader(data, batch_sampler=batches)", "", True),
        ("DataLoader(data, sampler=None)", "", False),
        ("DataLoader(data)", "    other = DataLoader(data, sampler=sampler)\n", False),
    ],
)
def test_a_sampler_is_replaced_by_a_sampler(make, call: str, below: str, expected: bool) -> None:
    process, _ = recorded(make, call, below=below)
    fix, code, *_ = loader_arguments.shuffling(process, LOADER, training=[])
    assert ("sampler" in fix) is ("RandomSampler" in code) is expected
    assert ("shuffle=True" in code) is not expected


def test_no_batch_is_dropped_beside_a_sampler_of_batches(make) -> None:
    process, _ = recorded(make, "DataLoader(data, batch_sampler=batches)")
    assert loader_arguments.with_arguments(process, process.site(1), {"drop_last": "True"}) is None


@pytest.mark.parametrize(
    ("call", "line"), [("DataLoader(data, batch_size=8)", 2), ("DataLoader(data, batch_sampler=batches)", 56)]
)
def test_a_crash_by_a_batch_of_one_is_changed_at_its_loader(make, call: str, line: int) -> None:
    """Where no line is known that can be edited, the place is the line that raised."""
    source = f"def make(data):\n    loader = {call}\n    return loader\n"
    text = "Expected more than 1 value per channel when training, got input size torch.Size([1, 8])"
    event = {"kind": "exception", "name": "ValueError", "text": text, "step": 7, "time": 1.0, "file": "train.py"}
    event |= {"line": 56, "source": "return self.head(x)"}
    sites, steps = sites_of(source, dataloader="loader ="), make.steps() | {"loader": [0] * 400}
    process = make.process(steps, sites=sites, loaders=[LOADER], events=[event], end=Exit("exception", 1))
    finding = make.check("crash", process)[2]
    assert finding.location.line == line
    assert (finding.seen_at.line if finding.seen_at else 56) == 56
    assert (finding.diff is not None) == (line == 2)


@pytest.mark.parametrize(
    ("loader", "known"),
    [
        ({"length": 51}, True),
        ({"length": 52}, False),  # in the middle of an epoch
        ({"length": 51, "drop_last": True}, False),
        ({"length": 51, "batch_size": 1}, False),
        ({"length": None}, False),  # a stream
    ],
)
def test_a_batch_of_one_that_was_the_last_of_its_epoch_is_told_so(make, loader: dict[str, Any], known: bool) -> None:
    text = "Expected more than 1 value per channel when training, got input size torch.Size([1, 8])"
    event = {"kind": "exception", "name": "ValueError", "text": text, "step": 400, "time": 20.0}
    steps = make.steps() | {"loader": [0] * 400, "loader_batches": [1] * 400}
    steps["loader_first"] = [index % 51 == 44 for index in range(400)]  # 50 batches since the last epoch began
    row = LOADER | {"batch_size": 16, "drop_last": False} | loader
    process = make.process(steps, loaders=[row], events=[event], end=Exit("exception", 1))
    assert ("It was the last of the epoch's 51 batches" in make.check("crash", process)[2].summary) is known


def test_an_example_says_what_a_computed_argument_has_to_be(make: Any) -> None:
    process, _ = recorded(make, "DataLoader(data, batch_size=8, shuffle=order != 'kept')")
    assert loader_arguments.shuffled(process, LOADER, [0.0]) is None, "an edit leaves it to the option"
    fix, code, diff, *_ = loader_arguments.shuffling(process, LOADER, [0.0])
    assert (code, diff) == ("loader = DataLoader(data, batch_size=8, shuffle=True)", None)
    assert "leave the validation data" in fix


def test_a_sampler_that_keeps_the_order_is_replaced_where_it_stands(make: Any) -> None:
    batches = "BatchSampler(torch.utils.data.SequentialSampler(data), 8, False)"
    process, _ = recorded(make, f"DataLoader(data, batch_size=None, sampler={batches})")
    _, code, *_ = loader_arguments.shuffling(process, {**LOADER, "sampler": "BatchSampler"}, [0.0])
    assert code == f"loader = DataLoader(data, batch_size=None, sampler={batches.replace('Sequential', 'Random')})"
    process, _ = recorded(make, "DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 8, False))")
    _, code, *_ = loader_arguments.shuffling(process, {**LOADER, "sampler": "BatchSampler"}, [0.0])
    assert code.startswith("from torch.utils.data import RandomSampler")


LONG = """\
DataLoader(
        data,
        batch_size=8,  # of all ranks
        num_workers=16,
        drop_last=True,
    )"""


@pytest.mark.parametrize(
    ("wanted", "line", "removed", "added"),
    [
        ({"num_workers": "1"}, 5, ["num_workers=16,"], ["num_workers=1,"]),
        ({"num_workers": "1", "drop_last": "False"}, 5, ["num_workers=16,", "drop_last=True,"],
         ["num_workers=1,", "drop_last=False,"]),
        ({"shuffle": "True"}, 6, ["drop_last=True,"], ["drop_last=True,", "shuffle=True,"]),
    ],
)  # fmt: skip
def test_a_call_on_several_lines_is_edited_where_it_stands(
    make: Any, wanted: dict[str, str], line: int, removed: list[str], added: list[str]
) -> None:
    process, source = recorded(make, LONG)
    whole = loader_arguments.with_arguments(process, process.site(1), wanted)
    diff = narrowed(whole)
    assert (diff.line, [one.strip() for one in diff.removed], [one.strip() for one in diff.added]) == (
        line, removed, added,
    )  # fmt: skip
    compile(applied(source, diff), "script", "exec")


def test_no_argument_is_put_behind_a_comment_that_ends_in_a_comma(make: Any) -> None:
    call = "DataLoader(\n        data  # samples, in order,\n    )"
    process, _ = recorded(make, call)
    assert loader_arguments.with_arguments(process, process.site(1), {"shuffle": "True"}) is None


def test_a_finding_about_an_argument_points_to_its_line(make: Any) -> None:
    process, _ = recorded(make, LONG)
    steps = make.steps() | {"loader": [0] * 400, "loader_wait": [0.02] * 400, "seconds": [0.05] * 400}
    process = make.process(
        steps, sites=list(process.sites.records()), loaders=[LOADER | {"num_workers": 16}], facts={"cpus": 2}
    )
    finding = make.check("too-many-workers", process)[2]
    assert (finding.location.line, finding.location.source) == (5, "num_workers=16,")
    assert "\n".join(finding.excerpt.lines).startswith("    loader = DataLoader(")


BEGUN = """def get_train_dataloader(self):
    return DataLoader(
        self.train_dataset,
        batch_size=self.args.batch,{shuffled}
        collate_fn=self.collator,
        num_workers=2,
        drop_last=True,
    )
"""


@pytest.mark.parametrize(
    ("shuffled", "is_own"),
    [
        ("", True),
        (" shuffle=False,", True),
        ("\n        shuffle=False,", True),
        ("\n        sampler=picked,", False),  # beside which it takes none
    ],
)
def test_a_call_that_is_longer_than_what_was_recorded_of_it(make, shuffled: str, is_own: bool) -> None:
    """Its beginning with the new argument: an invented call would lose the rest, and name what is not there."""
    process = make.process(sites=sites_of(BEGUN.format(shuffled=shuffled), dataloader="return DataLoader("))
    code = loader_arguments.example(process, LOADER | {"collated_by": "made"}, {"shuffle": "True"})
    if not is_own:
        assert code.startswith("loader = DataLoader(dataset, ")
        return
    assert code.startswith("return DataLoader(\n    self.train_dataset,\n    batch_size=self.args.batch,")
    assert code.endswith("\n    # its other arguments, as they are\n)")
    assert code.count("shuffle=True,\n") == 1
    assert "shuffle=False" not in code
    compile(f"def f(self):\n    {code.replace(chr(10), chr(10) + '    ')}", "example", "exec")
