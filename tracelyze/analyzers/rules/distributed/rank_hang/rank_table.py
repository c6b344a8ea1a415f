"""The ranks of a job that hangs, a line each: what it waits in, the number of that collective, and from which line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tracelyze.analyzers.rules.distributed.rank_hang.doing import Doing
    from tracelyze.analyzers.rules.distributed.rank_hang.late_ranks import Call, Late, Rank

MOST_ROWS: Final = 64
LONGEST_CELL: Final = 40
HEADS: Final = ("rank", "waits in", "number", "group", "line")

SHORT: Final = {
    "absent": "no dump",
    "empty": "no collective in its dump",
    "behind": "did not join",
    "stuck": "joined, saw no end",
    "unsent": "did not send",
}
"""How a rank is late, in a few words; the keys are those of late_ranks.How."""

IN_FULL: Final = {
    "absent": "left no dump: its process was gone, or could not write one any more",
    "empty": "has no collective to show while its peers wait: its process stands outside of them, or cannot run",
    "behind": "did not join",
    "stuck": "joined and never saw the end of",
    "unsent": "has not sent what would end",
}
"""How a rank is late, as the rest of a sentence that begins with the rank."""


def in_short(late: Late, doing: Doing | None) -> str:
    """What the rank did instead, where that is known, else how it is late; and how many wait."""
    waiting = f"{plural(len(late.waiting), 'rank')} {'completed it' if late.how == 'stuck' else 'waiting'}"
    return f"{doing.what if doing else SHORT[late.how]}; {waiting}"


def missed(late: Late) -> str:
    """The collective that it did not join, as a sentence; empty where none is known."""
    if late.call is None:
        return ""
    who = f"rank{'s wait' if len(late.waiting) > 1 else ' waits'}"
    named = who.replace(" wait", f" {listed(late.waiting, 8)} wait")
    return f" It did not join {late.call.operation} number {late.call.sequence:,}, in which {named}."


def together(sentences: Mapping[int, str]) -> str:
    """Sentences that begin with their ranks; what holds for several ranks is said once."""
    ranks: dict[str, list[int]] = {}
    for rank, sentence in sentences.items():
        ranks.setdefault(sentence.removeprefix(f"Rank {rank} "), []).append(rank)
    said = []
    for clause, (first, *rest) in ranks.items():
        said.append(f"Rank {first} {clause}")
        if rest:
            said.append(f"The same holds for {'ranks' if len(rest) > 1 else 'rank'} {listed(rest, 8)}.")
    return " ".join(said)


def sizes(recorded: str) -> str:
    """`[8] → [4, 2]` for `[[8]] -> [[4, 2]]`; once where what comes out is as large as what goes in."""
    parts = [part.strip().removeprefix("[").removesuffix("]") for part in recorded.split("->")]
    return " → ".join(dict.fromkeys(part for part in parts if part))


def text(ranks: Mapping[int, Rank], guilty: Collection[Late]) -> str:
    """The table as lines of equal columns; of many ranks the guilty ones and the first of the others."""
    late = {one.rank: one for one in guilty}
    numbers = sorted(ranks.keys() | late.keys())
    shown = sorted(sorted(numbers, key=lambda rank: (rank not in late, rank))[:MOST_ROWS])
    rows = [HEADS, *(_row(rank, ranks.get(rank), rank in late) for rank in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    kept = [column for column in range(len(HEADS)) if any(row[column] for row in rows[1:])]
    lines = ["  ".join(row[column].ljust(widths[column]) for column in kept).rstrip() for row in rows]
    rest = len(numbers) - len(shown)
    more = [f"and {rest:,} more ranks"] if rest else []
    return "\n".join([*lines, *more, "* holds up the others"])


def _row(rank: int, one: Rank | None, is_late: bool) -> tuple[str, ...]:
    name = f"{rank} *" if is_late else str(rank)
    call = _first(one) if one is not None else None
    if call is None:
        stands = "no dump" if one is None else "no collective in its dump"
        if one is not None and (one.calls or one.enqueued or one.doing):
            stands = "nothing"
        doing = one.doing.location if one is not None and one.doing else None
        line = f"{doing.file.rsplit('/', 1)[-1]}:{doing.line}" if doing else ""
        return name, stands, "", "", line
    group = call.description or call.group
    return name, call.operation[:LONGEST_CELL], f"{call.sequence:,}", group[:LONGEST_CELL], _line(call, one)


def _first(one: Rank) -> Call | None:
    """The first collective that is not complete on this rank, of the first of its groups that has one."""
    heads = [pending[0] for pending in one.pending.values() if pending]
    heads += [calls[0] for calls in one.received.values() if calls and not heads]
    return heads[0] if heads else None


def _line(call: Call, one: Rank | None) -> str:
    """The line of the program that enqueued it: from the dump's stack, else from that which the rank left."""
    place = call.stack.split("\n", 1)[0].partition(" ")[0]
    if place:
        return place.rsplit("/", 1)[-1]
    doing = one.doing.location if one is not None and one.doing else None
    return f"{doing.file.rsplit('/', 1)[-1]}:{doing.line}" if doing else ""


def waiting(others: int, ranks: int, for_whom: str) -> str:
    """How many ranks wait for those that are late."""
    if (others, ranks) == (1, 2):
        return f"The other rank waits for {for_whom}."
    one = others == 1
    return f"{plural(others, 'other rank')} of {ranks} wait{'s' if one else ''} for {for_whom}, directly or in turn."
