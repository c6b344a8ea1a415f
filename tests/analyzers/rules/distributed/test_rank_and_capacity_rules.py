"""straggler and uneven-batches, which compare ranks; memory-headroom, memory-underused, no-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tracelyze.analyzers.rules.distributed.clip_differs_by_rank import clip_norms
from tracelyze.analyzers.rules.distributed.straggler import alone, own_work
from tracelyze.diagnosis import Exit, Location

COUNT = 200
DDP = [{"model": 0, "name": "DistributedDataParallel", "parameters": 4, "elements": 100}]


def rank(make: Any, number: int, own: float = 0.02, backward: float = 0.02, count: int = COUNT, **more: Any) -> Any:
    tables, samples = more.pop("tables", None), more.pop("samples", None)
    steps = make.steps(count) | {"seconds": [own + backward] * count, "backward_seconds": [backward] * count}
    loaders = [{"loader": 0, "dataset": "Images", "iterable": False, "length": more.pop("length", 100)}]
    loaders[0] |= {"read_by": more.pop("read_by", None)} | more.pop("loader", {})
    more = {"loader_wait": [0.0] * count, "loader_first": [False] * count} | more
    models = more.pop("models", DDP)
    return make.process(
        steps | more, facts={"rank": number}, models=models, loaders=loaders, evals={}, samples=samples, more=tables
    )


def named(*processes: Any) -> Any:
    for process in processes:
        process.name = f"rank{process.rank:05d}"
    return processes


def test_one_rank_that_holds_up_the_others(make) -> None:
    ranks = named(rank(make, 0, 0.02, 0.05), rank(make, 1, 0.05, 0.02), rank(make, 2, 0.02, 0.05))
    _, _, finding = make.check("straggler", *ranks)
    assert (finding.severity, finding.ranks) == ("warning", [1])
    assert "not waiting for batches" in finding.summary
    (chart,) = finding.charts
    assert (chart.x_label, chart.x) == ("rank", [0.0, 1.0, 2.0])
    assert [line.name for line in chart.lines] == ["own work", "backward, and waiting in it"]
    assert chart.lines[0].y == pytest.approx([20.0, 50.0, 20.0])
    assert finding.title == "Rank 1 is the slowest, and the others wait 30 ms a step for it"
    _, _, of_two = make.check("straggler", *ranks[:2])
    assert of_two.title == "Rank 1 is the slowest, and rank 0 waits 30 ms a step for it"
    assert "In backward, rank 0 waits 30 ms a step for rank 1. Rank 1 is not waiting for batches" in of_two.summary
    reader = [
        {"site": 7, "role": "reader", "file": "t.py", "line": 9, "function": "__getitem__", "source": "x = load()"}
    ]
    loading = rank(make, 1, 0.05, 0.02, loader_wait=[0.03] * COUNT, read_by=7, tables={"sites": reader})
    finding = make.check("straggler", *named(ranks[0], loading))[2]
    assert "waiting for batches" in finding.summary
    assert finding.location.line == 9, "the line of the dataset that makes the slow rank's samples"


def test_a_rank_that_needs_a_third_more_than_the_other(make) -> None:
    ranks = named(rank(make, 0, 0.039, 0.033), rank(make, 1, 0.052, 0.02))
    assert make.check("straggler", *ranks)[2].ranks == [1]


@pytest.mark.parametrize(
    ("own", "backward"),
    [
        ((0.05, 0.05), (0.02, 0.02)),  # equally slow
        ((0.02, 0.021), (0.02, 0.019)),  # noise
        ((0.02, 0.05), (0.02, 0.02)),  # nobody waits
        ((0.06, 0.0725), (0.015, 0.0025)),  # a fifth more, in steps of nothing but own work
    ],
)
def test_ranks_that_keep_pace(make, own, backward) -> None:
    ranks = named(*(rank(make, number, own[number], backward[number]) for number in (0, 1)))
    assert make.check("straggler", *ranks)[0] == "passed"


def test_stages_of_a_pipeline_differ_in_their_work(make) -> None:
    """What such ranks do outside of backward is in part waiting for each other, which nothing tells apart."""

    def of(sizes: tuple[int, int], messages: float, counted: str) -> Any:
        group = {"group": "0", "members": "0 1", "enqueued": 4, "completed": 4, "operation": None}
        group |= {"completed": 4 + messages} if counted == "completed" else {"unseen": messages}
        models = [[{"model": 0, "name": "Stage", "parameters": 4, "elements": size}] for size in sizes]
        tables = {"collectives": [group]}
        return named(
            rank(make, 0, 0.02, 0.05, models=models[0], tables=tables),
            rank(make, 1, 0.05, 0.02, models=models[1], tables=tables),
        )

    assert make.check("straggler", *of((100, 100), 0, "completed"))[0] == "fired"
    assert make.check("straggler", *of((100, 100), 0.1 * COUNT, "unseen"))[0] == "fired", "now and then"
    for counted in ("completed", "unseen"):
        state, reason, _ = make.check("straggler", *of((100, 100), 8 * COUNT, counted))
        assert (state, "sends and receives" in reason) == ("skipped", True)
    looks = {
        "time": [1.0, 2.0, 3.0, 4.0],
        "innermost": ["a.py:1 f"] * 2 + ["torch/distributed/distributed_c10d.py:9 recv"] * 2,
    }
    seen = named(rank(make, 0, 0.02, 0.05, samples=looks), rank(make, 1, 0.05, 0.02))
    assert make.check("straggler", *seen)[0] == "skipped", "a program that ended by os._exit has counted nothing"
    state, reason, _ = make.check("straggler", *of((100, 200), 0, "unseen"))
    assert (state, "different models" in reason) == ("skipped", True)


def test_paces_are_named_from_the_least_to_the_most(make) -> None:
    """What a slow rank was kept from by other programs is taken off its own work, which may then be the shorter one."""
    looks = [float(second) for second in range(10)]
    crowded = {"time": looks, "delayed": [0.5 * second for second in looks], "cpu_seconds": [0.4 * t for t in looks]}
    ranks = named(rank(make, 0, 0.02), rank(make, 1, 0.021, samples=crowded))
    assert make.check("straggler", *ranks)[1] == "The ranks' own work takes 10.5 ms to 20 ms a step."


def reduces(late: float) -> list[dict[str, Any]]:
    """The last collectives of a rank that comes so much later than the others, of a script that averages by itself."""
    return [
        {"group": "0", "operation": "all_reduce", "p2p": False, "sequence": step, "created": 100 + 0.07 * step + late}
        for step in range(20)
    ]


@pytest.mark.parametrize(("late", "status"), [((0.0, 0.05), "fired"), ((0.0, 0.0), "passed")])
def test_a_rank_that_comes_late_to_the_collectives_of_the_script(make, late: tuple[float, float], status: str) -> None:
    """Steps of all ranks take equally long, and none waits in its backward."""
    ranks = [rank(make, number, 0.069, 0.001, tables={"collectives": reduces(late[number])}) for number in (0, 1)]
    found, _, finding = make.check("straggler", *named(*ranks))
    assert found == status
    if finding is not None:
        assert (finding.ranks, finding.title.endswith("rank 0 waits 50 ms a step for it")) == ([1], True)
        assert "outside the script's collectives" in finding.summary.lower()


def forwards(late: float) -> list[dict[str, Any]]:
    """Broadcasts of buffers, for which the other ranks wait in the forward, and the average of the gradients."""
    return [
        {"group": "0", "operation": name, "p2p": False, "sequence": 2 * step + after}
        | {"created": 100 + 0.12 * step + 0.01 * after + late * (not after)}
        for step in range(20)
        for after, name in enumerate(("broadcast", "all_reduce"))
    ]


@pytest.mark.parametrize(("late", "ranks"), [((0.05, 0.0), [0]), ((0.0, 0.0), None), ((0.0, 0.05), None)])
def test_the_first_rank_comes_late_to_the_broadcast_of_buffers(make, late: tuple[float, ...], ranks: Any) -> None:
    """The others wait for it in the forward of DistributedDataParallel: steps take equally long outside of backward.
    It waits for none of them there."""
    two = [rank(make, number, 0.06, 0.06, tables={"collectives": forwards(late[number])}) for number in (0, 1)]
    found, _, finding = make.check("straggler", *named(*two))
    assert (finding.ranks if finding else None) == ranks, found
    if finding is not None:
        assert "Outside backward and the broadcast of buffers, rank 0 needs 60 ms a step" in finding.summary


def test_the_line_at_which_only_the_straggler_is_found(make) -> None:
    """Once a second the sampler notes the line; lines of backward are where ranks wait for each other."""

    def seen(*sites: int) -> dict[str, Any]:
        return {"samples": [{"time": float(second), "site": site} for second, site in enumerate(sites)]}

    usual = rank(make, 0, 0.02, 0.05, tables=seen(1, 1, 3, 1, 1))
    slow = rank(make, 1, 0.05, 0.02, tables=seen(4, 1, 4, 4, 3))
    _, _, finding = make.check("straggler", *named(usual, slow))
    assert finding.location.line == 40
    assert "seen in line 40 far more often" in finding.summary
    alike = rank(make, 0, 0.02, 0.05, tables=seen(1, 4, 4, 1, 1))
    assert make.check("straggler", *named(alike, slow))[2].location is None


def test_the_line_of_what_a_rank_does_beside_what_all_do(make) -> None:
    """It is found at that line in less than half of its time, and nobody else is."""

    def seen(*sites: int) -> dict[str, Any]:
        return {"samples": [{"time": float(second), "site": site} for second, site in enumerate(sites)]}

    usual = rank(make, 0, 0.03, 0.05, tables=seen(1, 1, 2, 2, 3))
    slow = rank(make, 1, 0.05, 0.03, tables=seen(4, 1, 4, 2, 2, 3, 3, 4))
    assert make.check("straggler", *named(usual, slow))[2].location.line == 40


def reading(make: Any, number: int, own: float, backward: float, *lines: tuple[int, str, float], **more: Any) -> Any:
    """A rank that reads values back in these lines of functions, so often in a step."""
    rows = [
        {"site": at, "role": "read", "file": "t.py", "line": line, "function": function, "per_step": count}
        | {"source": "row = p.norm().item()"}
        for at, (line, function, count) in enumerate(lines)
    ]
    loop = {"site": 20, "role": "backward", "file": "t.py", "line": 90, "function": "main", "source": "loss.backward()"}
    signals = [{"time": 1.0, "step": 9, "signal": "reads", "state": more.pop("state", "on")}]
    process = rank(make, number, own, backward, tables={"sites": [*rows, loop], "signals": signals})
    process.facts |= {"host": more.get("host", "one")}
    return process


@pytest.mark.parametrize(
    ("lines", "others", "more", "expected"),
    [
        ([(49, "update", 1.0), (53, "update", 6.0)], [], {}, 53),
        ([(49, "update", 1.0), (95, "main", 1.0)], [], {}, 49),  # the loop's own line may be cheap
        ([(95, "main", 1.0)], [], {}, None),
        ([(53, "update", 6.0)], [(53, "update", 6.0)], {}, None),
        ([(53, "update", 6.0), (12, "report", 1.0)], [], {}, None),
        ([(53, "update", 0.1)], [], {}, None),  # now and then
        ([(53, "update", 6.0)], [], {"state": "off"}, None),
        ([(53, "update", 6.0)], [], {"host": "other"}, None),  # its machine may be the slow one
    ],
)
def test_what_only_the_straggler_reads_back(make, lines: Any, others: Any, more: Any, expected: int | None) -> None:
    ranks = named(reading(make, 0, 0.05, 0.02, *lines), reading(make, 1, 0.02, 0.05, *others, **more))
    _, _, finding = make.check("straggler", *ranks)
    assert (finding.location.line if finding.location else None) == expected
    assert (f"it alone reads values back in line {expected}, in each step" in finding.summary) == bool(expected)


LOOP = """\
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()

        if dist.get_rank() == 0:
            # beside the run
            kept.append(spectrum(model.module))
        total += loss.item()"""


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        (LOOP, 17, "Line 15 decides by the rank who does what line 17 calls"),
        (LOOP.replace("dist.get_rank() == 0", "step % 10 == 0"), 17, "Do what line 17 calls less often"),
        (LOOP.replace("spectrum(", "spectrum_of("), None, ""),
        (LOOP.replace("total +=", "spectrum(model); total +="), None, ""),
    ],
)
def test_the_call_of_what_one_rank_alone_was_seen_in(make, text: str, line: int | None, fix: str) -> None:
    site = {"site": 7, "role": "backward", "file": "t.py", "line": 12, "function": "main", "source": "loss.backward()"}
    site |= {"excerpt": text, "excerpt_line": 10}
    process = make.process(sites=[site], optimizers=[{"optimizer": 0, "name": "Adam", "backward_site": 7}])
    called = alone.called(process, Location("t.py", 4, "spectrum", "s = torch.linalg.svdvals(p)"))
    assert (called.place.line if called else None) == line
    assert called is None or called.fix.startswith(fix)
    assert alone.called(process, Location("t.py", 17, "main", "kept.append(x)")) is None
    assert called is None or called.fix.endswith("share it out among all ranks.")


def test_two_ranks_are_both_and_each_other(make) -> None:
    paces = {0: own_work.of(rank(make, 0, 0.02, 0.05)), 1: own_work.of(rank(make, 1, 0.05, 0.02))}
    place = Location("t.py", 4, "spectrum", "s = svd(p)")
    paces[1] = paces[1]._replace(seen=((place, 0.9),))
    limits = {"line": 0.5, "elsewhere": 0.25, "reads": 0.9}
    assert own_work.doing(1, paces, limits)[1] == "it was seen in line 4 far more often than rank 0"
    third = {2: paces[0]}
    assert own_work.doing(1, paces | third, limits)[1] == "it was seen in line 4 far more often than any other rank"
    for ranks, words in ((2, "both ranks"), (4, "all ranks")):
        assert alone.everyone(make.process(facts={"world_size": ranks})) == words


def test_a_rank_that_others_took_the_processors_from_is_no_straggler(make) -> None:
    """Half of its time it was ready to run, and other programs ran."""
    looks = [float(second) for second in range(12)]
    crowded = {"time": looks, "delayed": [0.5 * second for second in looks], "cpu_seconds": [0.4 * t for t in looks]}
    usual, slow = rank(make, 0, 0.02, 0.05), rank(make, 1, 0.05, 0.02)
    held_up = make.process(
        make.steps(COUNT) | {"seconds": [0.07] * COUNT, "backward_seconds": [0.02] * COUNT},
        facts={"rank": 1},
        models=DDP,
        evals={},
        samples=crowded,
    )
    assert make.check("straggler", *named(usual, slow))[0] == "fired"
    assert make.check("straggler", *named(usual, held_up))[0] == "passed"


def test_a_rank_with_many_times_the_work_is_a_straggler_on_a_crowded_machine_too(make) -> None:
    """Three quarters of its time others ran; what is left is still far more than the work of the other rank."""
    looks = [float(second) for second in range(40)]
    samples = {"time": looks, "delayed": [0.75 * second for second in looks], "cpu_seconds": [0.2 * t for t in looks]}
    busy = make.process(
        make.steps(COUNT) | {"seconds": [0.15] * COUNT, "backward_seconds": [0.03] * COUNT},
        facts={"rank": 1},
        models=DDP,
        evals={},
        samples=samples,
    )
    ranks = named(rank(make, 0, 0.002, 0.148), busy)
    assert make.check("straggler", *ranks)[2].ranks == [1]


def crowd(delayed: float, used: float) -> dict[str, Any]:
    """Once a second: a main thread that waits so long for a processor, in a process that uses one for so long."""
    looks = [float(second) for second in range(12)]
    return {"time": looks, "delayed": [delayed * one for one in looks], "cpu_seconds": [used * one for one in looks]}


@pytest.mark.parametrize(("used", "status"), [(0.19, "fired"), (0.07, "passed"), (0.054, "passed")])
def test_work_within_backward_counts_where_processors_say_so(make, used: float, status: str) -> None:
    """Others ran for most of the time, and what is left outside of backward is a small part of a step."""
    usual = rank(make, 0, 0.0048, 0.1246, samples=crowd(0.156, 0.054))
    slow = rank(make, 1, 0.0346, 0.095, samples=crowd(0.78, used))
    assert make.check("straggler", *named(usual, slow))[0] == status


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("self.mine = order[rank * share:(rank + 1) * share]", "order[rank : len(order) // ranks * ranks : ranks]"),
        ("part = rows[self.rank * n : self.rank * n + n]", "rows[self.rank : len(rows) // ranks * ranks : ranks]"),
        ("self.mine = order[rank::world]", ""),
        ("val = order[rank * share:(rank + 1) * share]", ""),
        ("loss = x[rank * 2]", ""),
    ],
)
def test_the_line_that_gives_each_rank_a_block(make, line: str, example: str) -> None:
    def batches(length: int) -> list[dict[str, Any]]:
        row = {"field": "0", "trained": True, "dtype": "int64"}
        return [row | {"time": 0.1 * step, "step": step, "shape": f"24x{length}"} for step in range(8)]

    site = {"site": 30, "role": "shift", "file": "a.py", "line": 51, "function": "__init__", "source": line}
    site |= {"excerpt": f"        {line}", "excerpt_line": 51}
    usual = rank(make, 0, 0.02, 0.05, tables={"batches": batches(17), "sites": [site]})
    slow = rank(make, 1, 0.05, 0.02, tables={"batches": batches(58), "sites": [site]})
    finding = make.check("straggler", *named(usual, slow))[2]
    assert "Rank 1's batches hold more: 1,392 values in the median, 408 for rank 0." in finding.summary
    assert example in finding.fix_code
    assert (finding.location is not None and finding.location.line == 51) == bool(example)
    alike = rank(make, 0, 0.02, 0.05, tables={"batches": batches(58), "sites": [site]})
    assert make.check("straggler", *named(alike, slow))[2].fix_code == ""


def test_a_second_is_too_short_to_call_a_rank_slow(make) -> None:
    brief = [rank(make, 0, 0.002, 0.005, count=15), rank(make, 1, 0.005, 0.002, count=15)]
    for process in brief:
        assert process.steps["time"].max() < 1.0
    assert make.check("straggler", *named(*brief))[0] == "skipped"


def test_one_rank_has_nobody_to_hold_up(make) -> None:
    assert make.check("straggler", *named(rank(make, 0)))[0] == "skipped"
    assert make.check("uneven-batches", *named(rank(make, 0)))[0] == "skipped"


def sizes(make: Any, *each: list[int], **more: Any) -> Any:
    ranks = [rank(make, number, batch_size=some, count=len(some), **more) for number, some in enumerate(each)]
    return make.check("uneven-batches", *named(*ranks))


def test_batches_of_different_sizes(make) -> None:
    _, _, finding = sizes(make, [32] * 200, [24] * 200)
    assert "24 on rank 1, 32 on rank 0" in finding.title
    varied = [20 + index % 17 for index in range(200)]
    assert "mean" in sizes(make, varied, [2 * size for size in varied])[2].title
    ranks = named(rank(make, 0, length=100), rank(make, 1, length=80))
    assert "batches per epoch" in make.check("uneven-batches", *ranks)[2].title
    unfinished = named(*(rank(make, number, length=length, count=50) for number, length in enumerate((100, 80))))
    assert "batches per epoch" in make.check("uneven-batches", *unfinished)[2].title


@pytest.mark.parametrize(("sampler", "own"), [("RandomSampler", True), ("DistributedSampler", False)])
def test_ranks_with_data_of_their_own_weigh_them(make, sampler: str, own: bool) -> None:
    """A DistributedSampler would take a part of each rank's, and fewer batches of the rank that has least."""
    ranks = [
        rank(make, number, batch_size=[size] * 200, loader={"batch_size": size, "sampler": sampler})
        for number, size in enumerate((60, 20))
    ]
    finding = make.check("uneven-batches", *named(*ranks))[2]
    assert ("all_reduce(samples)" in finding.fix_code) == own
    assert ("DistributedSampler(dataset" in finding.fix_code) != own
    assert ("Where you weight the losses, the sizes still differ" in finding.verify) == own


def test_a_record_that_was_cut_off_says_nothing_of_the_number_of_batches(make) -> None:
    whole = rank(make, 0, count=24, length=None)
    cut = rank(make, 1, count=15, length=None)
    cut.exit = Exit("signal", None, "Fatal Python error: Aborted")
    assert make.check("uneven-batches", *named(whole, cut))[0] == "skipped"


def test_batches_that_are_even_enough(make) -> None:
    last = [32 if index % 20 else 7 for index in range(200)]
    assert sizes(make, last, [32] * 200)[0] == "passed"  # the last of an epoch
    varied = [20 + index % 17 for index in range(200)]
    assert sizes(make, varied, varied[::-1])[0] == "passed"  # sequences of varying length
    assert sizes(make, [32] * 200, [32] * 199)[0] == "passed"


def test_uneven_inputs_that_were_joined(make) -> None:
    """Without a Join context the longer rank's backward would wait for ever."""
    ranks = named(rank(make, 0, length=100, count=200), rank(make, 1, length=80, count=160))
    status, reason, _ = make.check("uneven-batches", *ranks)
    assert status == "passed"
    assert "joined" in reason


def test_a_rank_that_idles_for_most_of_each_epoch_under_join(make) -> None:
    ranks = named(rank(make, 0, length=100, count=200), rank(make, 1, length=40, count=80))
    finding = make.check("uneven-batches", *ranks)[2]
    assert "40 on rank 1, 100 on rank 0" in finding.title
    assert "idles for 60%" in finding.summary
    assert "ConcatDataset" in finding.fix_code
    alone = named(rank(make, 0, length=100, count=200), rank(make, 1, length=40, count=160))
    assert make.check("uneven-batches", *alone)[0] == "passed", "as many steps do not come from the loader"


def device(make: Any, peak: float, seconds: float = 7200.0, busy: float | None = 0.97) -> Any:
    steps = make.steps(COUNT) | {"device_peak": [int(peak * 80e9)] * COUNT, "seconds": [seconds / COUNT] * COUNT}
    looks = [{"device": 0, "busy": busy}] if busy is not None else []
    facts = {"device": {"type": "cuda", "memory_bytes": 80e9}}
    return make.process(steps, facts=facts, more={"devices": looks})


def test_memory_that_is_nearly_used_up(make) -> None:
    _, _, finding = make.check("memory-headroom", device(make, 0.98))
    assert finding.severity == "info"
    assert make.check("memory-headroom", device(make, 0.8))[0] == "passed"
    refused = device(make, 0.98)
    refused.steps["device_retries"][:] = 1
    assert "refused memory once." in make.check("memory-headroom", refused)[2].summary
    assert make.check("memory-headroom", make.process())[0] == "skipped"


def test_memory_that_is_free(make) -> None:
    assert make.check("memory-underused", device(make, 0.1))[2].severity == "info"
    for process in (device(make, 0.6), device(make, 0.1, 60.0), device(make, 0.1, busy=0.5)):
        assert make.check("memory-underused", process)[0] == "passed"
    assert make.check("memory-underused", device(make, 0.1, busy=None))[0] == "skipped"


def test_a_long_training_without_evaluation(make) -> None:
    long = make.steps() | {"seconds": [5.0] * 400}
    assert make.check("no-validation", make.process(long, evals={}))[2].severity == "info"
    assert make.check("no-validation", make.process(long))[0] == "passed"
    assert make.check("no-validation", make.process(evals={}))[0] == "passed"  # a demo
    stream = [{"loader": 0, "dataset": "Web", "iterable": True, "length": None}]
    assert make.check("no-validation", make.process(long, evals={}, loaders=stream))[0] == "passed"  # pretraining
    logged = {"scalars": [{"name": "loss", "phase": "eval", "value": 1.0}]}
    assert make.check("no-validation", make.process(long, evals={}, more=logged))[0] == "passed"


def clips(make: Any, norms: tuple[float, float], losses: tuple[float, float] = (1.0, 1.0), limit: float = 1.0) -> Any:
    """Two ranks: the norms by which they clip, and the scale of their losses."""
    ranks = [
        rank(
            make,
            number,
            loss=[losses[number] * (2.0 + 0.01 * step) for step in range(COUNT)],
            grad_norm=[norms[number]] * COUNT,
            grad_norm_source=[2] * COUNT,
            clip_max_norm=[limit] * COUNT,
        )
        for number in (0, 1)
    ]
    return make.check("clip-differs-by-rank", *named(*ranks))


def test_parts_of_one_model_that_are_clipped_apart(make) -> None:
    _, _, finding = clips(make, (4.0, 2.0))
    assert (finding.severity, finding.ranks) == ("critical", [0, 1])
    assert "by 50%" in finding.title, "coefficients of 1/4 and 1/2"
    assert "(4 and 2 at step 1)" in finding.summary
    assert "scale = (max_norm /" in finding.fix_code


@pytest.mark.parametrize(
    ("source", "limit", "last"),
    [
        ("norm = nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)", "cfg.clip", "norm = squares.sqrt()"),
        ("clip_grad_norm_(net.parameters(), max_norm=0.5)", "0.5", "        p.grad.mul_(scale)"),
        ("clip_grad_norm_(net.parameters(), 2 * base)", "(2 * base)", "        p.grad.mul_(scale)"),
    ],
)
def test_a_clip_by_the_norm_of_the_whole_model_in_own_words(make, source: str, limit: str, last: str) -> None:
    site = {"site": 9, "role": "clip", "file": "t.py", "line": 4, "function": "main", "source": source}
    code = clip_norms.example(make.process(sites=[site | {"excerpt_line": 4, "excerpt": f"    {source}"}]))
    assert "for p in net.parameters():" in code
    assert f"scale = ({limit} / (squares" in code
    assert code.split("\n")[-1] == last


@pytest.mark.parametrize(
    ("norms", "losses", "limit"),
    [
        ((4.0, 4.0), (1.0, 1.0), 1.0),  # one norm for the whole model
        ((4.0, 2.0), (1.0, 1.3), 1.0),  # other data: trainings of their own
        ((0.4, 0.2), (1.0, 1.0), 1.0),  # nothing is clipped
    ],
)
def test_clips_that_are_as_they_should_be(make, norms, losses, limit) -> None:
    assert clips(make, norms, losses, limit)[0] == "passed"


@pytest.mark.parametrize(("same_batches", "status"), [(True, "fired"), (False, "passed")])
def test_clips_that_differ_have_the_losses_of_one_model_drift_apart(make, same_batches: bool, status: str) -> None:
    """A model that is split over ranks: the loss is one at first; other batches have changes of their own."""
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.1, (2, COUNT))
    own = noise[[0, 0]] if same_batches else noise
    losses = 3 * np.exp(-np.arange(COUNT) / 100) * np.exp(own + [[0.0], [0.1]] * (np.arange(COUNT) / COUNT))
    losses[:, 0] = 3.0
    clipped = {"grad_norm_source": [2] * COUNT, "clip_max_norm": [1.0] * COUNT}
    ranks = [
        rank(make, number, loss=losses[number].tolist(), grad_norm=[4.0 - number] * COUNT, **clipped)
        for number in (0, 1)
    ]
    assert make.check("clip-differs-by-rank", *named(*ranks))[0] == status


NAMES = ("embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias", "up.weight", "down.weight")
COPIES = {"embed.weight", "norm.weight", "norm.bias", "head.weight", "head.bias"}


def parts_of_a_model(make: Any, factor: float, copies: set[str], own: float = 0.0) -> Any:
    """Two ranks with copies of some tensors, beside parts; `factor`: of the second rank's gradients of the copies.

    `own`: by how much gradients of equal weights differ besides, one from the other, as those of unlike batches do.
    """
    random = np.random.default_rng(7)
    weights = random.uniform(1, 3, (2, len(NAMES)))
    gradients = random.uniform(0.01, 1, len(NAMES)) * np.exp(own * random.normal(0, 1, (2, len(NAMES))))
    rows = [
        [
            {
                "step": 1,
                "parameter": name,
                "weight_norm": 0.0 if name == "norm.bias" else float(weights[0 if name in copies else number, place]),
                "grad_norm": float(gradients[number, place]) * (factor if number and name in copies else 1.0),
            }
            for place, name in enumerate(NAMES)
        ]
        for number in (0, 1)
    ]
    ranks = [rank(make, number, tables={"parameters": rows[number]}) for number in (0, 1)]
    return make.check("clip-differs-by-rank", *named(*ranks))


def test_copies_whose_gradients_one_rank_scales(make) -> None:
    _, _, finding = parts_of_a_model(make, 3.9, COPIES)
    assert (finding.severity, finding.ranks, finding.first_step) == ("critical", [0, 1], 1)
    assert finding.title == "Rank 1 scales gradients of shared weights by 3.9 against rank 0"


@pytest.mark.parametrize(
    ("factor", "copies", "own"),
    [
        (1.0, COPIES, 0.0),  # clipped alike
        (3.9, set(NAMES), 0.0),  # no parts: trials of one script with other settings, or data-parallel
        (3.9, COPIES, 0.3),  # stages of a pipeline that were seeded alike: gradients of their own
        (3.9, {"norm.bias", "norm.weight"}, 0.0),  # too few to tell a factor from chance
    ],
)
def test_copies_that_are_as_they_should_be(make, factor: float, copies: set[str], own: float) -> None:
    assert parts_of_a_model(make, factor, copies, own)[0] != "fired"


def test_little_work_a_rank(make) -> None:
    rule = "small-batch-per-rank"
    _, _, finding = make.check(rule, *named(rank(make, 0, 0.001, 0.02), rank(make, 1, 0.001, 0.021)))
    assert (finding.severity, finding.confidence) == ("info", "likely")
    assert "32 samples a rank are" in finding.title
    uneven = [rank(make, at, 0.001, 0.02, batch_size=[size] * COUNT) for at, size in enumerate((96, 28))]
    assert "28 to 96 samples a rank are" in make.check(rule, *named(*uneven))[2].title
    assert make.check(rule, *named(rank(make, 0, 0.01, 0.03), rank(make, 1, 0.01, 0.03)))[0] == "passed", "recomputed"
    late = named(rank(make, 0, 0.001, 0.03), rank(make, 1, 0.029, 0.002))
    assert make.check(rule, *late)[0] == "passed", "one waits for the other"
    by_hand = named(*(make.process(make.steps(), facts={"rank": number}, evals={}) for number in (0, 1)))
    assert make.check(rule, *by_hand)[0] == "skipped"
    assert make.check(rule, *named(rank(make, 0)))[0] == "skipped"


def exchanging(make, *shares: float, text: str = "dist.all_reduce(tensor)", calls: int = 40, name: str = "all_reduce"):
    """Ranks that stand in a collective of the script for these shares of their samples."""
    ranks = []
    for number, share in enumerate(shares):
        sites = [
            {"site": 1, "role": "sampled", "file": "train.py", "line": 30, "function": "guard", "source": text},
            {
                "site": 2,
                "role": "backward",
                "file": "train.py",
                "line": 9,
                "function": "fit",
                "source": "loss.backward()",
            },
        ]
        process = rank(make, number)
        ends = process.longest.steps["time"]
        there = [index < share * 40 for index in range(40)]
        samples = {
            "time": [float(one) for one in np.linspace(ends[0] + 1e-3, ends[-1], 40)],
            "site": [1 if one else 2 for one in there],
            "innermost": [f"torch/distributed/distributed_c10d.py:3252 {name}" if one else "f.py:1 f" for one in there],
        }
        group = {"group": "0", "members": "0 1", "enqueued": calls * COUNT, "operation": None}
        ranks.append(rank(make, number, samples=samples, tables={"collectives": [group], "sites": sites}))
    return make.check("exposed-communication", *named(*ranks))


def test_a_line_of_the_script_that_exchanges_at_every_step(make) -> None:
    status, reason, finding = exchanging(make, 0.6, 0.5)
    assert status == "fired", reason
    assert (finding.location.line, finding.ranks, finding.confidence) == (30, [0, 1], "likely")
    assert "50%" in finding.title
    assert "40 collective calls" in finding.summary


@pytest.mark.parametrize(
    ("shares", "changed"),
    [
        ((0.6, 0.1), {}),  # one rank is slow, and the other waits for it
        ((0.6, 0.5), {"calls": 3}),  # a metric and the buckets of gradients
        ((0.6, 0.5), {"text": "loss = model(x)"}),  # a wrapper's own, within the call of its model
        ((0.6, 0.5), {"name": "barrier", "text": "dist.barrier()"}),
        ((0.6,), {}),
    ],
)
def test_exchanges_that_are_as_they_should_be(make, shares: tuple[float, ...], changed: dict[str, Any]) -> None:
    assert exchanging(make, *shares, **changed)[0] != "fired"


HELD_OUT = "eval_dataset=held_out,"


@pytest.mark.parametrize(
    ("given", "loop", "kind", "status"),
    [
        (HELD_OUT, "trainer.train()", "finished", "fired"),
        (HELD_OUT, "trainer.train()", "interrupted", "passed"),  # it may have meant to evaluate later
        ("eval_dataset=None,", "trainer.train()", "finished", "passed"),
        (HELD_OUT, "optimizer.step()", "finished", "passed"),  # a loop of the script's own
        ("num_train_epochs=15,", "trainer.train()", "finished", "passed"),
    ],
)
def test_held_out_data_that_a_trainer_never_looks_at(make, given: str, loop: str, kind: str, status: str) -> None:
    place = {"file": "a.py", "function": "main"}
    sites = [
        {"site": 1, "role": "step", "line": 107, "source": loop, **place},
        {"site": 2, "role": "setting", "line": 104, "source": given, **place},
        {"site": 3, "role": "setting", "line": 85, "source": "learning_rate=a.lr,", **place},
    ]
    process = make.process(evals={}, sites=sites, end=Exit(kind, 0))
    found, reason, finding = make.check("no-validation", process)
    assert found == status, reason
    if finding is not None:
        assert (finding.severity, finding.location.line) == ("info", 85)
        assert "line 104 hands over" in finding.summary
        assert "eval_strategy" in finding.fix_code
    assert make.check("no-validation", make.process(sites=sites, end=Exit(kind, 0)))[0] == "passed", "it is evaluated"
