"""rank-hang of recorded ranks: who is late, and who only works."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.distributed.rank_hang import decisions, rank_table
from tracelyze.analyzers.rules.distributed.rank_hang import left_out as left_out_call
from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Rank
from tracelyze.diagnosis import Exit, Location

LAST = 20.0  # when the last of 400 steps ended
GONE = Exit("vanished", None, "the process left no exit record")


def rank(
    make: Any, number: int, enqueued: int, done: int, *, end: Exit = GONE, at: float = LAST + 40, **more: Any
) -> Any:
    """A rank that had enqueued and completed so many all_reduces when its collectives were written down at `at`."""
    group = {"time": at, "group": "0", "members": "0 1 2", "enqueued": enqueued, "completed": done}
    calls = [
        {
            "time": at,
            "group": "0",
            "sequence": done + 1,
            "operation": "all_reduce",
            "sizes": "[[8]] -> [[8]]",
            "state": "scheduled",
            "p2p": False,
        }
    ]
    rows = [] if enqueued < 0 else [group, *(calls if enqueued > done else [])]
    process = make.process(facts={"rank": number, "world_size": 3}, end=end, more={"collectives": rows}, **more)
    process.name = f"rank{number:05d}"
    return process


def stacks(place: str, at: float = LAST + 40) -> list[dict[str, Any]]:
    text = f"training thread (MainThread), innermost last:\n  train.py:9 main\n  {place}\nthread other:\n  x.py:1 y"
    return [{"time": at, "kind": "stacks", "name": "no progress", "text": text, "file": "train.py", "line": 9,
             "source": "f()"}]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("torch/utils/data/dataloader.py:800 _next_data", "it waited for its data loader at train.py:9"),
        ("torch/serialization.py:900 save", "it read or wrote a checkpoint at train.py:9"),
        ("ssl.py:1100 read", "it waited for the network at train.py:9"),
        ("train.py:30 sort_everything", "it was in sort_everything at train.py:9"),
    ],
)
def test_what_the_late_rank_did_instead(make, place: str, told: str) -> None:
    waiting = [rank(make, number, 7, 6) for number in (0, 1)]
    status, _, finding = make.check("rank-hang", *waiting, rank(make, 2, 6, 6, events=stacks(place)))
    assert (status, finding.ranks) == ("fired", [2])
    assert told in finding.summary
    assert finding.location.line == 9
    table = next(str(one.value) for one in finding.evidence if one.name == "what each rank waits in").splitlines()
    assert [line[:6].strip() for line in table[:4]] == ["rank", "0", "1", "2 *"]
    assert table[1].split()[1:] == ["all_reduce", "7", "0"]  # the collective, its number and its group
    assert table[3].endswith("train.py:9")
    assert table[4] == "* holds up the others"


def in_call(make: Any, number: int, place: str, **more: Any) -> Any:
    """A rank of two of whose sends and receives nothing was recorded; it stands at `place`."""
    process = make.process(facts={"rank": number, "world_size": 2}, end=GONE, events=stacks(place), **more)
    process.name = f"rank{number:05d}"
    return process


@pytest.mark.parametrize(
    ("calls", "title"),
    [
        (("recv", "recv"), "Both ranks wait to receive, and no rank sends"),
        (("send", "send"), "Both ranks wait to send, and no rank receives"),
        (("send", "recv"), "Both ranks wait for each other, in sends and receives that do not match"),
    ],
)
def test_ranks_that_wait_for_each_other_in_sends_and_receives(make, calls: tuple[str, str], title: str) -> None:
    ranks = [in_call(make, rank, f"torch/distributed/distributed_c10d.py:9 {call}") for rank, call in enumerate(calls)]
    status, _, finding = make.check("rank-hang", *ranks)
    assert (status, finding.title, finding.ranks) == ("fired", title, [0, 1])
    assert f"Rank 1 waited in {calls[1]} at line 9, `f()`" in finding.summary


def test_a_receive_that_waits_for_a_rank_at_work_is_no_hang(make) -> None:
    waits = in_call(make, 0, "torch/distributed/distributed_c10d.py:9 recv")
    assert make.check("rank-hang", waits, in_call(make, 1, "train.py:30 sort_everything"))[0] == "skipped"


def test_a_rank_that_left_no_dump(make) -> None:
    waiting = [rank(make, number, 7, 6) for number in (0, 1)]
    _, _, finding = make.check("rank-hang", *waiting, rank(make, 2, -1, -1))
    assert finding.ranks == [2]


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_a_rank_without_a_folder_is_accused_by_its_own_number(make, absent: int) -> None:
    """Also rank 0, which no judged process has: the finding speaks of it, not of the rank that was judged."""
    waiting = [rank(make, number, 7, 6) for number in (0, 1, 2) if number != absent]
    _, _, finding = make.check("rank-hang", *waiting)
    assert finding.title == f"Rank {absent} holds up a job of 3 ranks"
    assert "2 other ranks of 3 wait for it" in finding.summary
    assert finding.ranks == [absent]


RUNNING = Exit("running", None, "process 1 is still running")


def test_a_rank_that_still_works_is_not_accused(make) -> None:
    waiting = [rank(make, number, 7, 6, end=RUNNING) for number in (0, 1)]
    status, reason, _ = make.check("rank-hang", *waiting, rank(make, 2, -1, -1, end=RUNNING))
    assert (status, reason) == ("passed", "2 ranks wait for rank 2, which is at work.")


def test_a_rank_that_crashed_is_the_crash(make) -> None:
    raised = [{"time": LAST + 1, "kind": "exception", "name": "KeyError", "text": "KeyError: 'x'"}]
    waiting = [rank(make, number, 7, 6) for number in (0, 1)]
    crashed = rank(make, 2, 6, 6, at=LAST + 1.1, end=Exit("exception", 1, "KeyError: 'x'"), events=raised)
    status, reason, _ = make.check("rank-hang", *waiting, crashed)
    assert (status, reason) == ("passed", "Others waited for rank 2, which had ended: see crash and killed.")


def test_ranks_that_waited_and_went_on(make) -> None:
    went_on = [rank(make, number, 7, 6, at=LAST - 5) for number in (0, 1)]
    assert make.check("rank-hang", *went_on, rank(make, 2, 6, 6, at=LAST - 5))[0] == "passed"


def test_ranks_that_all_ended(make) -> None:
    ended = [rank(make, number, 30 + number, 30 + number, end=Exit("finished", 0)) for number in range(3)]
    assert make.check("rank-hang", *ended)[0] == "passed"


def test_the_last_collective_of_a_rank_that_ended_normally_is_complete(make) -> None:
    """The dump that is written as a program ends may still call its last collective scheduled."""
    ended = Exit("finished", 0, "")
    complete = [rank(make, number, 7, 7, end=ended) for number in (0, 2)]
    assert make.check("rank-hang", *complete, rank(make, 1, 7, 6, end=ended))[0] == "passed"
    failed = [rank(make, number, 8, 7, end=Exit("finished", 1)) for number in (0, 2)]
    gone = Exit("signal", None, "asked to terminate (SIGTERM), in read at line 6 of a.py")
    _, _, finding = make.check("rank-hang", *failed, rank(make, 1, 7, 7, end=gone))
    assert (finding.ranks, finding.location.line) == ([1], 6), "exit code 1 of those that waited is no normal end"
    waiting = [rank(make, number, 8, 7) for number in (0, 2)]
    status, _, finding = make.check("rank-hang", *waiting, rank(make, 1, 7, 6, end=ended))
    assert (status, finding.ranks) == ("fired", [1]), "it ended before the others"


LOOP = """        for x, y in train:
            loss.backward()
            optimizer.step()
        error = held_out(model)
        {condition}
            {leaves}

    dist.barrier()"""


@pytest.mark.parametrize(
    ("condition", "leaves", "named"),
    [
        ("if patience.exhausted(error):", "break", True),
        ("if not math.isfinite(error): return error", "print(error)", True),
        ("if step >= args.max_steps:", "break", False),  # all ranks have that
        ("if epoch == last:", "print(error)", False),  # nothing leaves the loop
        ("with timer:", "break", False),
    ],
)
def test_the_condition_by_which_a_rank_leaves_the_loop_alone(make, condition: str, leaves: str, named: bool) -> None:
    text = LOOP.format(condition=condition, leaves=leaves)
    row = {"file": "train.py", "function": "main", "role": "backward", "excerpt": text, "excerpt_line": 32}
    process = make.process(sites=[row | {"site": 1, "line": 33, "source": "loss.backward()"}])
    waited = (Location("train.py", 39, "", "dist.barrier()"), Location("train.py", 33, "", "loss.backward()"))
    found = decisions.between(process, *waited)
    assert (found is not None) == named
    if found is not None:
        assert (found.line, found.source) == (36, condition)
        assert condition in decisions.said(found)
    assert decisions.between(make.process(sites=[]), *waited) is None, "no lines were recorded"
    assert decisions.said(None) == ""


SKIPS = """    for x, y in train:
        known = y >= 0
        {condition}
            continue
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
{behind}dist.barrier()"""


@pytest.mark.parametrize(
    ("condition", "behind", "batches", "named"),
    [
        ("if not known.any():", "    ", 90, True),
        ("if known.sum() == 0:", "    ", 90, True),
        ("if not known.any():", "    ", 100, False),  # 400 steps: four passes, of all batches
        ("if not known.any():", "        ", 90, False),  # the other rank waits in the loop as well
        ("if step % 4:", "    ", 90, False),
        ("if step >= 80:", "    ", 90, False),
        ("print(known)", "    ", 90, False),
    ],
)
def test_the_condition_by_which_a_rank_leaves_out_steps(
    make, condition: str, behind: str, batches: int, named: bool
) -> None:
    text = SKIPS.format(condition=condition, behind=behind)
    row = {"file": "train.py", "function": "main", "excerpt": text, "excerpt_line": 32}
    head = row | {"line": 32, "source": "for x, y in train:"}
    sites = [head | {"site": 1, "role": "loop"}, head | {"site": 2, "role": "loader"}]
    loaders = [{"loader": 0, "length": batches, "site": 2}]
    steps = {**make.steps(), "backwards": [1.0] * 400}
    process = make.process(steps=steps, sites=sites, more={"loaders": loaders})
    waited = (Location("train.py", 39, "", "dist.barrier()"), Location("train.py", 37, "", "loss.backward()"))
    found, words = decisions.skipping(process, *waited, {"Rank 0": 400})
    assert (found is not None) == named
    if found is not None:
        assert (found.line, found.source) == (34, condition)
        assert f"Line 34 leaves out steps: `{condition}`. Rank 0 had made 400 steps" in words


TIMED_OUT = "RuntimeError: Timed out waiting 15000ms for recv operation to complete"


def lost(make: Any, number: int, line: int, source: str, text: str = TIMED_OUT) -> Any:
    raised = {"time": LAST + 15, "step": 400, "kind": "exception", "name": "RuntimeError", "text": text}
    end = Exit("exception", 1, text)
    return rank(
        make,
        number,
        7,
        7,
        at=LAST + 16,
        end=end,
        events=[raised | {"file": "train.py", "line": line, "source": source}],
    )


def test_ranks_that_lost_each_other_at_different_lines(make) -> None:
    others = [lost(make, number, 33, "loss.backward()") for number in (0, 2)]
    status, _, finding = make.check("rank-hang", *others, lost(make, 1, 38, "dist.barrier()"))
    assert (status, finding.ranks, finding.location.line, finding.seen_at.line) == ("fired", [1], 38, 33)
    assert finding.title == "Rank 1 waited in dist.barrier() while rank 0 waited in loss.backward()"
    assert "exchange that value first" in finding.fix
    assert "all_reduce(decision" in finding.fix_code
    assert make.check("rank-hang", *others, lost(make, 1, 33, "loss.backward()"))[0] == "passed", "all at one line"
    failed = lost(make, 1, 30, "x = table[key]", "KeyError: 'a'")
    assert make.check("rank-hang", *others, failed)[0] == "passed", "a rank that failed by itself is the crash"


def test_a_rank_that_ended_while_another_waited(make) -> None:
    ended = rank(make, 1, 7, 7, end=Exit("finished", 0, ""))
    status, _, finding = make.check("rank-hang", lost(make, 0, 33, "loss.backward()"), ended)
    assert (status, finding.ranks, finding.location.line) == ("fired", [1], 33)
    assert "Rank 1 ended normally after 400 steps." in finding.summary
    assert "the same number of batches" in finding.fix
    assert "Join" in finding.fix_code


def test_a_rank_that_the_launcher_ended_elsewhere_after_others_timed_out(make) -> None:
    others = [lost(make, number, 33, "loss.backward()") for number in (0, 2)]
    saving = Exit("signal", None, "asked to terminate (SIGTERM), in save at line 20 of train.py")
    status, _, finding = make.check("rank-hang", *others, rank(make, 1, 7, 7, end=saving))
    assert (status, finding.ranks, finding.location.line) == ("fired", [1], 20)
    assert finding.title == "Rank 1 was in save() at line 20 while rank 0 waited in loss.backward()"
    assert "the others waited until their time-out" in finding.summary
    at_one_line = Exit("signal", None, "asked to terminate (SIGTERM), in <module> at line 33 of train.py")
    assert make.check("rank-hang", *others, rank(make, 1, 7, 7, end=at_one_line))[0] == "passed"
    waits = Exit("signal", None, "asked to terminate (SIGTERM) in a collective, in recv at line 50 of train.py")
    assert make.check("rank-hang", *others, rank(make, 1, 7, 7, end=waits))[0] == "passed", "it waits for others, too"
    gone = "RuntimeError: Connection closed by peer"
    closed = [lost(make, number, 33, "loss.backward()", gone) for number in (0, 2)]
    assert make.check("rank-hang", *closed, rank(make, 1, 7, 7, end=saving))[0] == "passed", "nobody waited in vain"


ABORTED = "Fatal Python error: Aborted in a library's thread in a collective, in main at line 30 of train.py"


def test_a_rank_that_gloo_aborts_was_in_another_collective(make) -> None:
    """Gloo ends a process that gets more than it waits for, and the launcher ends the rest."""
    closed = "RuntimeError: Connection closed by peer"
    first = lost(make, 0, 30, "dist.all_reduce(metric)", closed)
    aborted = rank(make, 1, 7, 7, end=Exit("signal", None, ABORTED))
    asked = Exit("signal", None, "asked to terminate (SIGTERM) in a backward, in main at line 33 of train.py")
    _, _, finding = make.check("rank-hang", first, aborted, rank(make, 2, 7, 7, end=asked))
    assert (finding.ranks, finding.location.line) == ([2], 33)
    assert finding.title == "Rank 2 waited at line 33 while rank 0 waited in dist.all_reduce(metric)"
    assert "larger than what rank 1 waited for" in finding.summary
    _, _, finding = make.check("rank-hang", lost(make, 0, 33, "loss.backward()", closed), aborted)
    assert finding.title == "Ranks 0 and 1 wait for each other in different collectives", "nothing says which one left"
    assert "Rank 0 waited at line 33, `loss.backward()`, after 400 steps." in finding.summary
    assert "after at least 400 steps." in finding.summary, "what rank 1 had not written is lost"
    assert "runs out of batches" in finding.summary
    assert "ReduceOp.MIN" in finding.fix
    by_itself = Exit("signal", None, "Fatal Python error: Aborted, in main at line 30 of train.py")
    failed = rank(make, 1, 7, 7, end=by_itself)
    assert make.check("rank-hang", first, failed, rank(make, 2, 7, 7, end=asked))[0] == "passed"


@pytest.mark.parametrize(
    ("sizes", "left_out"),
    [
        ([3, 81] * 8 + [81], 3),
        ([3, 81, 81] * 6 + [3, 81, 3], 81),
        ([3, 81] * 8 + [3], None),
        ([3, 81] * 8 + [7], None),  # something new, which the others may have left out
        ([3, 81, 81], None),
        ([81] * 12, None),
        ([3, 81] * 4 + [5, 3, 81] + [3, 81] * 4 + [5], None),
    ],
)
def test_what_a_rank_left_out(sizes: list[int], left_out: int | None) -> None:
    calls = [Call("0", "", number, "all_reduce", f"[[{size}]]", "") for number, size in enumerate(sizes)]
    found = left_out_call.of(Rank(0, recent={"0": calls}))
    assert (found.sizes if found else None) == (f"[[{left_out}]]" if left_out else None)


def test_a_rank_that_stood_in_a_debugger_says_so(make) -> None:
    debugger = Exit("signal", None, "asked to terminate (SIGTERM) in a debugger, in main at line 20 of train.py")
    _, _, finding = make.check("rank-hang", lost(make, 0, 33, "loss.backward()"), rank(make, 1, 7, 7, end=debugger))
    assert finding.title == "Rank 1 stood in a debugger at line 20 while rank 0 waited for it"
    assert "a person answers more slowly" in finding.fix


def test_without_dumps_it_is_skipped(make) -> None:
    assert make.check("rank-hang", make.process())[:2] == ("skipped", "The run has no dumps of collectives.")


def test_a_rank_that_was_ended_while_it_did_something_else_says_what(make) -> None:
    """The launcher ends a job that hangs: what the rank stood in is why it is accused."""
    waiting = [rank(make, number, 7, 6) for number in (0, 1)]
    ended = Exit("signal", None, "asked to terminate (SIGTERM), in read at line 6 of a.py")
    _, _, finding = make.check("rank-hang", *waiting, rank(make, 2, -1, -1, end=ended))
    assert finding.summary.startswith(
        "Rank 2 was in read() at a.py:6 when it was asked to terminate (SIGTERM), after 400 steps. "
        "It did not join all_reduce number 7, in which ranks 0 and 1 wait."
    )
    said = {one.name: str(one.value) for one in finding.evidence}
    assert said["rank 2"].startswith("was in read() at a.py:6 when it was asked to terminate")
    assert "dump" not in finding.summary + "".join(said.values()), "nobody wrote dumps by hand"
    assert said["sizes of its tensors"] == "[8]"


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [("[[8]] -> [[8]]", "[8]"), ("[[769]]", "[769]"), ("[[4, 8], [4]] -> [[8]]", "[4, 8], [4] → [8]"), ("", "")],
)
def test_sizes_of_tensors_are_written_once(recorded: str, shown: str) -> None:
    assert rank_table.sizes(recorded) == shown


def test_what_holds_for_several_ranks_is_said_once() -> None:
    alike = {3: "Rank 3 left no dump.", 5: "Rank 5 did not join.", 7: "Rank 7 left no dump.", 9: "Rank 9 left no dump."}
    said = "Rank 3 left no dump. The same holds for ranks 7 and 9. Rank 5 did not join."
    assert rank_table.together(alike) == said


def stood(make: Any, number: int, place: tuple[int, str, str], looks: int = 20, end: Exit = GONE,
          function: str = "main", more: Any = ()) -> Any:  # fmt: skip
    """A rank of two that was seen once a second at this line, source and innermost frame from its last step on."""
    line, source, innermost = place
    samples = {"time": [LAST + 1 + second for second in range(looks)], "site": [7.0] * looks,
               "innermost": [innermost] * looks}  # fmt: skip
    site = {"site": 7, "file": "train.py", "line": line, "function": function, "source": source, "role": "sampled"}
    process = make.process(facts={"rank": number, "world_size": 2}, end=end, samples=samples, sites=[site, *more])
    process.name = f"rank{number:05d}"
    return process


BARRIER = (65, "dist.barrier()", "torch/distributed/distributed_c10d.py:5356 barrier")
BACKWARD = (56, "loss.backward()", "torch/autograd/graph.py:979 _engine_run_backward")
CLOSED = Exit("exception", 1, "RuntimeError: Connection closed by peer [127.0.0.1]:19860")


def test_ranks_that_stood_in_different_collectives_until_something_ended_the_job(make) -> None:
    status, _, finding = make.check("rank-hang", stood(make, 0, BARRIER), stood(make, 1, BACKWARD))
    assert (status, finding.ranks, finding.location.line, finding.seen_at.line) == ("fired", [0], 65, 56)
    assert finding.title == "Rank 0 waited in dist.barrier() while rank 1 waited in loss.backward()"
    assert "They stood there for 19 s until something ended the job." in finding.summary
    gathering = (70, "dist.all_gather(a, b)", "torch/distributed/distributed_c10d.py:40 all_gather")
    asked = Exit("signal", None, "asked to terminate (SIGTERM) in a collective, in main at line 70 of train.py")
    cancelled = [stood(make, 0, gathering, end=asked), stood(make, 1, BACKWARD, end=asked)]
    assert make.check("rank-hang", *cancelled)[0] == "fired"


EVALUATES = (40, "errors.append(gather(error))", "torch/distributed/distributed_c10d.py:4287 all_gather")


@pytest.mark.parametrize(("condition", "line"), [("if rank == 0:", 65), ("if accelerator.is_main_process:", 65),
                                                 ("if step % 10 == 0:", 40)])  # fmt: skip
def test_a_function_that_only_one_rank_calls_until_its_wait_ends_the_job(make, condition: str, line: int) -> None:
    """Processes that torch.multiprocessing.spawn starts end with no more than an exit code."""
    text = f"    loss.backward()\n    {condition}\n        score = evaluate(model)"
    trains = {"site": 1, "file": "train.py", "line": 64, "function": "main", "role": "backward"}
    trains |= {"source": "loss.backward()", "excerpt": text, "excerpt_line": 64}
    failed = [Exit("finished", None), Exit("finished", 1)]
    job = [stood(make, 0, EVALUATES, end=failed[0], function="evaluate", more=[trains])]
    job.append(stood(make, 1, (64, "loss.backward()", BACKWARD[2]), end=failed[1], more=[trains]))
    status, _, finding = make.check("rank-hang", *job)
    assert (status, finding.location.line) == ("fired", line)
    assert ("lets only some ranks call evaluate() at line 66" in finding.summary) == (line == 65)
    assert make.check("stops-short", job[0])[0] == make.check("stops-short", job[1])[0] == "skipped"


def test_ranks_that_were_ended_and_show_no_hang(make) -> None:
    evaluates = (60, "mae = evaluate(model)", "train.py:40 evaluate")
    for other in (stood(make, 1, evaluates), stood(make, 1, BACKWARD, looks=3), stood(make, 1, BARRIER)):
        assert make.check("rank-hang", stood(make, 0, BARRIER), other)[0] == "skipped"
    ended = Exit("finished", 0, "")
    well = [stood(make, 0, BARRIER, end=ended), stood(make, 1, BACKWARD, end=ended)]
    assert make.check("rank-hang", *well)[0] == "skipped"
