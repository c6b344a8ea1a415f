"""How the ranks of a job ended: who was the first, and how much later the others followed."""

from __future__ import annotations

from typing import Any

from tracelyze.analyzers import diagnose
from tracelyze.diagnosis import Agreement, Exit
from tracelyze.reports import render

PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:16769"


def rank(make: Any, number: int, at: float, text: str, end: Exit | None = None, world: int = 2) -> Any:
    facts = {"rank": number, "world_size": world, "host": "here", "launcher": "here-1", "clock": {"zero": 1000.0}}
    name = text.partition(":")[0]
    events = [{"time": at, "step": 90, "kind": "exception", "name": name, "text": text, "file": "a.py", "line": 9}]
    end = end or Exit("exception", 1, text)
    process = make.process(make.steps(90), events=events if end.kind == "exception" else [], facts=facts, end=end)
    process.name = f"rank{number:05d}"
    return process


def ends(diagnosis: Any) -> list[Agreement]:
    return [one for one in diagnosis.ranks if one.name == "How they ended"]


def test_the_first_rank_and_those_that_followed(make) -> None:
    diagnosis = diagnose(make.run(rank(make, 0, 40.67, PEER), rank(make, 1, 40.0, "KeyError: 'tok100'")))
    (row,) = ends(diagnosis)
    assert (row.state, row.ranks, row.since, row.rule) == ("odd", [1], 90, "crash")
    assert row.said.startswith(
        "Rank 1 was the first, after 90 steps: KeyError: 'tok100'; rank 0, 670 ms later: Runtime"
    )
    assert "How they ended" in render(diagnosis, "html")
    assert "rank 0, 670 ms later" in render(diagnosis, "text").replace("\n", " ").replace("  ", " ")


def test_a_lost_peer_that_was_quicker_is_not_the_first(make) -> None:
    (row,) = ends(diagnose(make.run(rank(make, 0, 39.0, PEER), rank(make, 1, 40.0, "KeyError: 'tok100'"))))
    assert row.ranks == [1]
    assert "later" not in row.said, "it was sooner"


def test_many_ranks_are_counted(make) -> None:
    lost = [rank(make, number, 41.0 + number, PEER, world=12) for number in range(1, 12)]
    (row,) = ends(diagnose(make.run(rank(make, 0, 40.0, "ValueError: no", world=12), *lost)))
    assert row.said.endswith("6 more ranks after them.")
    assert row.said.count(";") == 6


def test_one_death_needs_no_table(make) -> None:
    ended = rank(make, 0, 41.0, PEER, Exit("finished", 0))
    assert ends(diagnose(make.run(ended, rank(make, 1, 40.0, "KeyError: 'x'")))) == []
    assert ends(diagnose(make.run(rank(make, 0, 40.0, "KeyError: 'x'", world=1)))) == []


def test_a_message_that_is_cut_ends_in_its_ellipsis_alone(make) -> None:
    (row,) = ends(diagnose(make.run(rank(make, 0, 40.67, PEER * 5), rank(make, 1, 40.0, "KeyError: 'tok100'"))))
    assert row.said.endswith("…")


def test_a_rank_that_had_ended_by_itself_is_named(make) -> None:
    early = rank(make, 1, 0.0, PEER, Exit("finished", 0))
    _, _, finding = make.check("crash", rank(make, 0, 40.0, PEER), early)
    assert finding.title == "Rank 0 waited for rank 1, which had ended by itself"
    assert "after 90 optimizer steps" in finding.summary
    assert "hangs" not in finding.summary


def test_a_rank_without_a_recording_may_have_done_anything(make) -> None:
    _, _, finding = make.check("crash", rank(make, 0, 40.0, PEER))
    assert finding.title == "Rank 0 lost contact with the other ranks"
