"""Ranks that see the same data, by the contents of their batches, and those that see their own."""

from __future__ import annotations

import pytest

from tests.analyzers.batch_orders import IDS, RANDOM, epochs, shuffled
from tracelyze.analyzers.computed.data import passes
from tracelyze.analyzers.ranks import agreement


def ranks(make, orders: list[list[list[int]]], model: str = "DistributedDataParallel", **columns):
    """What is said of ranks with these epochs."""
    loader = [RANDOM | {"loader": 0} | columns]
    models = [{"model": 0, "name": model, "parameters": 4, "elements": 100}]
    processes = [
        make.process(loaders=loader, models=models, more={"batches": epochs(order)}, facts={"rank": rank})
        for rank, order in enumerate(orders)
    ]
    return make.check("same-data-on-every-rank", *processes)


def test_the_same_data_on_every_rank(make) -> None:
    status, _, finding = ranks(make, [shuffled([1, 2])] * 3)
    assert (status, finding.severity) == ("fired", "critical")
    assert finding.title == "All 3 ranks train on the same samples: they do the work of one"
    assert finding.summary.startswith("From the first pass on, all 3 ranks")
    assert finding.cost.share == pytest.approx(2 / 3)
    times = make.process().steps["time"]
    assert finding.cost.seconds == pytest.approx(2 / 3 * (times[-1] - times[0])), "of one rank, and only what is lost"
    assert finding.ranks == [0, 1, 2]
    assert "DistributedSampler(" in finding.fix_code
    compared = next(one.value for one in finding.evidence if one.name.startswith("batches of the first pass compared"))
    assert f"({compared} batches of the first pass compared" in finding.summary


def test_ranks_whose_later_passes_differ_or_were_not_compared(make) -> None:
    """A validation on rank 0 draws from the generator that orders the passes: only the first one is the same."""
    for orders in ([shuffled([1, 2, 3]), shuffled([1, 7, 8])], [shuffled([1])] * 2):
        finding = ranks(make, orders)[2]
        assert finding.title == "Both ranks train on the same samples: nothing divides them"
        assert finding.summary.startswith("In the first pass both ranks were handed the same batch")
        assert "those of one rank" not in finding.summary
        assert ("orders are not all the same" in finding.summary) == (len(orders[0]) > 1)


@pytest.mark.parametrize(
    ("second", "state", "said"),
    [
        ([1, 2, 3], "own", "the same batches, at"),
        ([1, 7, 8], "own", "the same batches in the first pass, and not in all that followed"),
        ([6, 7, 8], "agree", "each rank has its own"),
    ],
)
def test_the_table_of_ranks_says_of_samples_what_the_rule_says(make, second: list[int], state: str, said: str) -> None:
    gathered = [
        passes.of_training(make.process(more={"batches": epochs(shuffled(one))})) for one in ([1, 2, 3], second)
    ]
    row = agreement._data(dict(enumerate(gathered)), {}, 2)
    assert row is not None
    assert (row.state, said in row.said) == (state, True)
    assert state == "agree" or "of all passes that were compared" in row.said
    assert state == "agree" or "up to" not in row.said, "of two ranks there is one number"


def test_the_same_stream_on_every_rank_is_divided_where_it_is_read(make) -> None:
    stream = {"iterable": True, "dataset": "Readings", "sampler": "_InfiniteConstantSampler"}
    finding = ranks(make, [shuffled([1, 2])] * 2, **stream)[2]
    assert "Readings, an IterableDataset, which no sampler divides" in finding.summary
    assert "DistributedSampler(" not in finding.fix_code
    assert "sampler" not in {one.name for one in finding.evidence}


@pytest.mark.parametrize(
    ("field", "status"),
    [
        ({"dtype": "float32", "mean": 0.1, "std": 0.6, "min": -2.0, "max": 2.0}, "fired"),  # coordinates
        ({"dtype": "float32", "mean": 0.5, "std": 0.5, "min": 0.0, "max": 1.0}, "skipped"),  # answers, yes or no
        ({"dtype": "int64", "mean": 1.0, "std": 0.8, "min": 0.0, "max": 2.0}, "skipped"),  # classes
        ({**IDS}, "fired"),  # users
        ({**IDS, "shape": "4"}, "skipped"),  # a few of them
        ({**IDS, "zeros": 0.8}, "skipped"),  # counts, nearly all 0
        ({**IDS, "std": 12.0}, "skipped"),  # nearly all alike, and one far from them
    ],
)
def test_samples_that_are_too_small_for_prints_of_their_own(make, field, status: str) -> None:
    small = [{**row, **field, "prints": None} for row in epochs(shuffled([1, 2]))]
    models = [{"model": 0, "name": "DistributedDataParallel", "parameters": 4, "elements": 100}]
    processes = [
        make.process(loaders=[RANDOM | {"loader": 0}], models=models, more={"batches": small}, facts={"rank": number})
        for number in (0, 1)
    ]
    assert make.check("same-data-on-every-rank", *processes)[0] == status


def ranks_by_hand(
    make, contents: list[list[str]], samples: str = "aa bb cc", model: str = "DistributedDataParallel", sites=()
):
    """What is said of ranks that call their models with these batches, of which no loader made one."""
    models = [{"model": 0, "name": model, "parameters": 4, "elements": 100}]
    processes = []
    for rank, prints in enumerate(contents):
        rows = [
            {
                "time": 1.0,
                "step": step,
                "epoch": 0,
                "batch": step + rank,
                "trained": True,
                "field": "0",
                "print": one,
                "prints": samples,
            }
            for step, one in enumerate(prints)
        ]
        tables = {"batches": rows}
        processes.append(make.process(loaders=[], models=models, sites=sites, more=tables, facts={"rank": rank}))
    return make.check("same-data-on-every-rank", *processes)


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        ({4: "draw of main", 12: "loop of main", 14: "split of main", 18: "backward of main"}, 14),
        ({4: "draw of <module>", 8: "draw of get_batch", 12: "loop of main", 18: "backward of main"}, 8),
        ({4: "draw of one", 8: "draw of other", 12: "loop of main", 18: "backward of main"}, 12),
        ({4: "draw of <module>", 12: "loop of <module>", 18: "backward of <module>"}, 12),
        ({6: "batches of batches", 12: "loop of main", 18: "backward of main"}, 6),
    ],
)
def test_the_line_that_makes_the_batches_of_a_loop_without_a_loader(make, sites: dict[int, str], line: int) -> None:
    """Not the line of the backward: drawn in the loop, in one function, or whatever the loop goes over."""
    rows = [
        dict(zip(("role", "function"), said.split(" of "), strict=True))
        | {"site": at, "file": "train.py", "line": at, "source": "i = torch.randint(9, (4,))" if "draw" in said else ""}
        for at, said in sites.items()
    ]
    _, _, finding = ranks_by_hand(make, [["a", "b", "c", "d", "e"]] * 2, sites=rows)
    assert finding.location.line == line
    assert finding.seen_at.line == 18


DRAWING = """
def corpus(seed):
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 50, (900,), generator=g)
def get_batch(data):
    at = torch.randint(len(data) - 8, (16,))
    return torch.stack([data[i : i + 8] for i in at])
def main():
    for step in range(steps):
        x = get_batch(data)
        loss = model(x)
        loss.backward()
"""


def test_of_two_functions_that_draw_the_one_that_the_loop_calls(make) -> None:
    text = DRAWING.strip()
    lines = text.split("\n")
    sites = [
        {"site": at, "role": role, "file": "t.py", "line": at, "function": function, "source": lines[at - 1].strip()}
        | {"excerpt": text, "excerpt_line": 1}
        for at, role, function in (
            (3, "draw", "corpus"), (5, "draw", "get_batch"), (8, "loop", "main"), (11, "backward", "main")
        )
    ]  # fmt: skip
    finding = ranks_by_hand(make, [["a", "b", "c", "d", "e"]] * 2, sites=sites)[2]
    assert finding.location.line == 5
    assert finding.fix_code.endswith("at = torch.randint(len(data) - 8, (16,), generator=own)")
    assert "once, above the loop" in finding.fix_code, "a generator made in get_batch would repeat its first batch"
    sites[1]["source"] = lines[4] = "at = torch.randint(len(data) - 8, (16,), generator=g)"
    sites[1]["excerpt"] = "\n".join(lines)
    finding = ranks_by_hand(make, [["a", "b", "c", "d", "e"]] * 2, sites=sites)[2]
    assert finding.fix_code.endswith("index = torch.randint(len(data), (batch_size,), generator=own)")


def test_ranks_that_draw_the_same_batches_by_hand(make) -> None:
    same, other = ["a", "b", "c", "d", "e"], ["f", "g", "h", "i", "j"]
    status, _, finding = ranks_by_hand(make, [same, same])
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert finding.title == "Both ranks train on the same batches: they do the work of one"
    assert "get_rank()" in finding.fix_code
    assert finding.charts == [], "a loss says nothing about it"
    heads, *rows = str(finding.evidence[-1].value).splitlines()
    assert heads.split() == ["batch", "rank", "0", "rank", "1"]
    assert len(rows) == 5
    assert all(row.split()[1] == row.split()[2] for row in rows)
    assert finding.first_step == 1
    assert ranks_by_hand(make, [same, other])[0] == "passed"
    assert ranks_by_hand(make, [["a"] * 5] * 2)[0] == "skipped", "all of the data in each step, or a fixed grid"
    assert ranks_by_hand(make, [same, same], samples="aa aa")[0] == "skipped", "one sample: few states may be alike"
    assert ranks_by_hand(make, [same, same], model="Stage")[0] == "skipped"


def test_ranks_that_see_different_data_or_hold_parts_of_a_model(make) -> None:
    assert ranks(make, [shuffled([1, 2]), shuffled([3, 4])])[0] == "passed"
    assert ranks(make, [shuffled([1, 2]), shuffled([1, 2]), shuffled([3, 4])])[0] == "passed"
    assert ranks(make, [shuffled([1, 2])] * 2, model="Stage")[1].startswith("No wrapper averages")
    assert ranks(make, [[[0] * 50] * 2] * 2)[1].startswith("Too few batches")
    assert ranks(make, [shuffled([1])])[:2] == ("skipped", "The run has one rank.")


def test_ranks_that_shuffle_alike_until_one_of_them_draws_a_number_more(make) -> None:
    status, _, finding = ranks(make, [shuffled([1, 2, 3]), shuffled([1, 5, 6])])
    assert (status, finding.severity) == ("fired", "critical")
    assert finding.summary.startswith("In the first pass both ranks")
    assert ranks(make, [shuffled([1, 2, 3]), shuffled([4, 2, 3])])[0] == "passed"
