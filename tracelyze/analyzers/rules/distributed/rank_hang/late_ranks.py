"""Which rank holds up a job that hangs, from the collectives that every rank had enqueued (Flight Recorder).

A collective is complete when all ranks of its group have joined it. So a rank that waits has one that is not complete,
and a rank that is waited for has enqueued fewer than its peers, or has none to show. Most ranks of a hang are both:
they wait in one group and are missing in another one because of it. The guilty ones wait for nobody.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tracelyze.analyzers.rules.distributed.rank_hang import doing, standing
from tracelyze.analyzers.rules.distributed.rank_hang.doing import Doing
from tracelyze.analyzers.rules.distributed.rank_hang.standing import Standing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

# Operations that no rank can complete before all have joined; a broadcast's source, for one, may be done before.
_ALL_JOIN = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "_all_gather_base",
    "reduce_scatter",
    "_reduce_scatter_base",
    "all_to_all",
    "barrier",
    "allgather",
    "alltoall",
)


_PAIR = re.compile(r"(?P<what>send|recv) \d{1,6}(?:->|<-)(?P<other>\d{1,6})$")

MOST_RECEIVES = 4  # from a rank that are kept: a pipeline posts one or two ahead
MOST_PENDING = 64  # collectives of a group that are kept: the first that is not complete explains the others


@dataclass(frozen=True)
class Call:
    """A collective that a rank enqueued and that is not complete there."""

    group: str
    description: str
    sequence: int
    operation: str
    sizes: str
    stack: str

    @staticmethod
    def of(row: Mapping[str, Any], sequence: int) -> Call:
        """The one that a row of the table collectives tells of."""
        texts = (str(row[name] or "") for name in ("description", "operation", "sizes", "stack"))
        description, operation, sizes, stack = texts
        return Call(str(row["group"]), description, sequence, operation, sizes, stack)


@dataclass
class Rank:
    """What one rank's dump says: members of its groups, the last number enqueued in each, and what is not complete.

    `recorded`: by the collector, so `doing` says what the rank did; `failed`: its dump is from after an exception, when
    collectives that failed look complete. `sent`, `receives`: how many sends to each rank and receives from it were
    enqueued; `received`: the last of these receives; `pairs`: groups that have some of them; `cut`: the first ones were
    overwritten or left out, so that they cannot be counted; `unseen`: its backend does not record them. `recent`:
    the last collectives of each group in their order, complete or not. `stands`: where it waited when it was last seen.
    """

    rank: int
    members: dict[str, tuple[int, ...]] = field(default_factory=dict)
    enqueued: dict[str, int] = field(default_factory=dict)
    pending: dict[str, list[Call]] = field(default_factory=dict)
    calls: int = 0
    recorded: bool = False
    failed: bool = False
    doing: Doing | None = None
    sent: Counter[int] = field(default_factory=Counter)
    receives: Counter[int] = field(default_factory=Counter)
    received: dict[int, list[Call]] = field(default_factory=dict)
    pairs: set[str] = field(default_factory=set)
    cut: bool = False
    unseen: bool = False
    recent: dict[str, list[Call]] = field(default_factory=dict)
    stands: Standing | None = None

    def is_at_work(self) -> bool:
        """Whether the rank still runs, and has not stood still so long that its collectives were written down."""
        return self.recorded and self.doing is not None and self.doing.running and not self.doing.stack

    def completed(self, group: str) -> int | None:
        """The last collective of the group that is complete there; None where it shows none at all."""
        pending = self.pending.get(group)
        return pending[0].sequence - 1 if pending else self.enqueued.get(group)


How = Literal["absent", "empty", "behind", "stuck", "unsent"]
"""No dump; nothing enqueued; missing in a collective; in one that does not end; a receive waits for what it did not
send."""


@dataclass(frozen=True)
class Late:
    """A rank that holds up others: how that shows, and the collective that waits for it, with the ranks that wait."""

    rank: int
    how: How
    call: Call | None
    waiting: tuple[int, ...]


def read(process: Process) -> Rank:
    """What the dump of this process says, of several the one that shows where it stood when it last moved on."""
    one = Rank(process.rank, stands=standing.of(process))
    rows = list(process.tables["collectives"].records())
    times = sorted({row["time"] for row in rows if row["time"] is not None})
    if times or (not rows and process.world_size > 1):
        one.recorded, one.doing = True, doing.of(process)
        chosen, one.failed = _dump_to_read(process, times)
        rows = [row for row in rows if row["time"] == chosen]
    for row in rows:
        _take(one, row)
    if one.cut:
        one.sent.clear()
        one.receives.clear()
        one.received.clear()
    for group, pending in one.pending.items():
        one.pending[group] = sorted(pending, key=lambda call: call.sequence)[:MOST_PENDING]
    went_on = bool(times) and times[-1] < doing.last_step(process)
    ended_well = process.exit.kind == "finished" and not process.exit.code
    if went_on or ended_well:  # a dump at the end may miss that the last ones were complete
        one.pending.clear()
        one.received.clear()
    return one


def _dump_to_read(process: Process, times: Sequence[float]) -> tuple[float | None, bool]:
    """Which dump to read, and whether it is from after an exception."""
    raised = [row["time"] for row in process.events_of("exception") if row["time"] is not None]
    if not raised or not times:
        return (times[-1] if times else None), False
    stood = [time for time in times if doing.last_step(process) < time < raised[-1]]
    return (stood[-1], False) if stood else (times[-1], True)


def together(by_rank: Iterable[tuple[int, Rank | None]]) -> dict[int, Rank]:
    """The ranks by number; one without a dump has nothing to show."""
    ranks: dict[int, Rank] = {}
    for number, one in by_rank:
        if one is not None or number not in ranks:
            ranks[number] = one or Rank(number)
    for group in {name for one in ranks.values() for name in one.enqueued}:
        if not any(one.members.get(group) for one in ranks.values()):  # Gloo does not say who is in a group
            having = {number for number, one in ranks.items() if group in one.enqueued}
            silent = {number for number, one in ranks.items() if one.recorded and not one.enqueued}
            having |= silent if having | silent == ranks.keys() else set()
            for number in having:
                ranks[number].members[group] = tuple(sorted(having))
    return ranks


def _take(one: Rank, row: Mapping[str, Any]) -> None:
    group, sequence = str(row["group"]), row["sequence"]
    if row["operation"] is None:
        one.members[group] = tuple(int(word) for word in str(row["members"] or "").split())
        one.unseen = one.unseen or bool(row["unseen"])
        if row["enqueued"] is not None:
            one.enqueued[group] = max(one.enqueued.get(group, -1), int(row["enqueued"]))
        return
    one.calls += 1
    if row["p2p"]:
        _take_pair(one, row)
        return
    if sequence is None:
        return
    one.enqueued[group] = max(one.enqueued.get(group, -1), int(sequence))
    if one.recorded:
        one.recent.setdefault(group, []).append(Call.of(row, int(sequence)))
    if row["state"] != "completed":
        one.pending.setdefault(group, []).append(Call.of(row, int(sequence)))


def _take_pair(one: Rank, row: Mapping[str, Any]) -> None:
    """A send or a receive, as NCCL names them: `send 0->3`, by the places of the ranks in their group.

    Their state says nothing: those of batch_isend_irecv stay "scheduled" when they are complete.
    """
    group, pair = str(row["group"]), _PAIR.match(str(row["operation"]))
    members = one.members.get(group, ())
    if pair is None or int(pair["other"]) >= len(members):
        return
    other, sequence = members[int(pair["other"])], int(row["sequence"] or 0)
    one.cut = one.cut or (group not in one.pairs and sequence > 1)  # a group numbers them from 1, for all peers
    one.pairs.add(group)
    if pair["what"] == "send":
        one.sent[other] += 1
    else:
        kept = one.received.setdefault(other, [])
        kept.append(Call.of(row, sequence))
        one.receives[other] += 1
        del kept[:-MOST_RECEIVES]


def unsent(one: Rank, ranks: Mapping[int, Rank]) -> dict[int, Call]:
    """The ranks that have enqueued fewer sends to this one than it has receives from them, with the first such receive.

    A receive cannot end before its send began, so such a rank is waited for, whatever the states say.
    """
    found: dict[int, Call] = {}
    for rank, receives in one.received.items():
        peer = ranks.get(rank)
        countable = peer is not None and receives[0].group in peer.pairs and not (peer.cut or one.cut)
        lacking = one.receives[rank] - peer.sent[one.rank] if peer is not None and countable else 0
        if lacking > 0:
            found[rank] = receives[-min(lacking, len(receives))]
    return found


def waiting(ranks: Mapping[int, Rank]) -> list[int]:
    """The ranks with a collective that is not complete, or a receive that nothing was sent for."""
    return [one.rank for one in ranks.values() if any(one.pending.values()) or unsent(one, ranks)]


def guilty(ranks: Mapping[int, Rank]) -> list[Late]:
    """The ranks that hold up others and wait for none that is late itself, in order; empty where nobody is late."""
    late: dict[int, Late] = {}
    for one in (*ranks.values(), *_absent(ranks)):
        found = _absent_or_empty(one, ranks) or _stuck(one, ranks) or _behind(one, ranks) or _unsent(one, ranks)
        if found is not None:
            late[one.rank] = found
    sure = {rank for rank, found in late.items() if found.how not in ("behind", "unsent")}
    first = [late[rank] for rank in sorted(late) if rank in sure or not (_waits_for(ranks[rank], ranks) & late.keys())]
    return first or [late[rank] for rank in sorted(late) if late[rank].how == "unsent"]  # they wait for each other


def _absent(ranks: Mapping[int, Rank]) -> list[Rank]:
    """Ranks of a group that have no dump."""
    named = {rank for one in ranks.values() for members in one.members.values() for rank in members}
    return [Rank(rank) for rank in sorted(named - ranks.keys())]


def _absent_or_empty(one: Rank, ranks: Mapping[int, Rank]) -> Late | None:
    if one.calls or (one.recorded and one.enqueued):
        return None
    waiting = [(peer, call) for peer in ranks.values() for call in _first(peer) if one.rank in _members(peer, call)]
    if one.recorded and not waiting:
        return None
    how: How = "absent" if one.rank not in ranks or one.recorded else "empty"
    if not waiting and not any(peer.calls for peer in ranks.values()):
        return None
    call = min((call for _, call in waiting), key=lambda call: call.sequence, default=None)
    return Late(one.rank, how, call, tuple(sorted({peer.rank for peer, _ in waiting})))


def _stuck(one: Rank, ranks: Mapping[int, Rank]) -> Late | None:
    """A collective that is complete on a peer, and so has all ranks' data, and does not end here: the device stands."""
    for call in _first(one):
        if not call.operation.startswith(_ALL_JOIN):
            continue
        peers = [ranks[rank] for rank in _members(one, call) if rank in ranks and rank != one.rank]
        ahead = [peer for peer in peers if not peer.failed and (peer.completed(call.group) or -1) >= call.sequence]
        if ahead:
            return Late(one.rank, "stuck", call, tuple(peer.rank for peer in ahead))
    return None


def _behind(one: Rank, ranks: Mapping[int, Rank]) -> Late | None:
    """The first collective in which peers wait and that this rank has not enqueued."""
    found: list[tuple[Call, int]] = []
    for group, members in one.members.items():
        for rank in members:
            peer = ranks.get(rank)
            if peer is None or rank == one.rank:
                continue
            missing = [call for call in peer.pending.get(group, []) if call.sequence > one.enqueued.get(group, -1)]
            found += [(missing[0], rank)] if missing else []
    if not found:
        return None
    call = min((call for call, _ in found), key=lambda call: call.sequence)
    return Late(one.rank, "behind", call, tuple(sorted({rank for _, rank in found})))


def _unsent(one: Rank, ranks: Mapping[int, Rank]) -> Late | None:
    """The first receive of a peer that waits for a send which this rank has not enqueued."""
    missing = {peer.rank: call for peer in ranks.values() if (call := unsent(peer, ranks).get(one.rank)) is not None}
    return Late(one.rank, "unsent", missing[min(missing)], tuple(sorted(missing))) if missing else None


def _waits_for(one: Rank, ranks: Mapping[int, Rank]) -> set[int]:
    """The ranks that have not joined a collective in which this one waits, or not sent what it waits for."""
    return unsent(one, ranks).keys() | {
        rank
        for call in _first(one)
        for rank in _members(one, call)
        if rank != one.rank and (rank not in ranks or ranks[rank].enqueued.get(call.group, -1) < call.sequence)
    }


def _first(one: Rank) -> Sequence[Call]:
    """The first collective of each group that is not complete: those behind it wait for it."""
    return [pending[0] for pending in one.pending.values() if pending]


def _members(one: Rank, call: Call) -> tuple[int, ...]:
    return one.members.get(call.group, ())
