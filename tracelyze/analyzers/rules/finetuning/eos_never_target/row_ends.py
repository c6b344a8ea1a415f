"""The id in which the rows of a language model's batches end, and whether the model can learn where a text ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import texts
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Row
    from tracelyze.analyzers.rule import Limits


@dataclass(frozen=True)
class End:
    """The id in which rows end. `known`: the model's configuration says that it ends a text. `stop`: the last target
    that counts, where that is one id in most rows; `word`: it stands elsewhere, too, as a full stop does. `padding`:
    the id that fills rows up behind it, where that is another one."""

    symbol: int
    known: bool
    share: float  # of the rows
    stop: int | None
    word: bool
    padding: int | None = None


def of(rows: list[Row], limits: Limits, known: set[int], by_template: bool = False) -> End | str:
    """The end that is never a target, or why the model can learn where a text ends, or why that is not known. Answers
    of one length need none, unless a template says what is a target: it marks turns, whatever their length."""
    looked = plural(len(rows), "batch")
    last = _last(rows, limits)
    if last is None:
        return f"in {looked} that were looked at, rows do not end in one id"
    if any(row[last.counts] for row in rows):
        return f"id {last.symbol}, in which rows end, is a target that counts in {looked}"
    stop, is_known = _stop(rows, limits), last.symbol in known
    if stop is not None and (stop in known or _ends_texts(rows, limits, last, is_known)):
        return f"the last target that counts is id {stop} in most rows of {looked}"
    alike = len({row[name] for row in rows for name in ("targets_least", "targets_most")}) == 1
    if alike and not (by_template and is_known):
        return "all rows have the same number of targets that count: where to stop is not to be learned"
    if not is_known and not _is_written(rows, last):
        return f"rows end in id {last.symbol}, which may be nothing but padding: nothing shows that it ends a text"
    inside = _inside(rows)
    if stop is None and not is_known and _recorded(rows) and not inside and _ends_alone(rows, limits):
        return "the commonest last targets stand nowhere else in the rows: they may be what ends a text"
    return End(last.symbol, is_known, last.share, stop, _is_word(rows, limits) or inside > 0, last.padding)


@dataclass(frozen=True)
class _Last:
    """The id in which rows end, and the share of them that do. `counts`: the column that says whether it is a target
    that counts. `apart`: other ids stand behind it, or it fills no row; `padding`: the one that does, if it is one."""

    symbol: int
    share: float
    counts: str
    apart: bool = False
    padding: int | None = None


def _last(rows: list[Row], limits: Limits) -> _Last | None:
    last = texts.constant(rows, "end_id")
    share = texts.mean(rows, "end_rows")
    behind = texts.constant(rows, "behind_id") if _recorded(rows) else None
    if behind is not None and behind >= 0 and behind != last and texts.mean(rows, "behind_rows") >= limits["ended"]:
        padding = int(last) if last is not None and share >= limits["stopped"] else None
        return _Last(int(behind), texts.mean(rows, "behind_rows"), "behind_counts", apart=True, padding=padding)
    if last is not None and share >= limits["ended"]:
        return _Last(int(last), share, "end_counts")
    return None


def _recorded(rows: list[Row]) -> bool:
    """Whether it is known what stands behind the ends, and in the rows. Older recordings do not tell it."""
    return all(row["behind_id"] is not None for row in rows)


def _stop(rows: list[Row], limits: Limits) -> int | None:
    """The last target that counts, where it is one id in most rows of every batch."""
    same = all(row["stop_same"] >= limits["stopped"] and row["stop_id"] == rows[0]["stop_id"] for row in rows)
    return int(rows[0]["stop_id"]) if same else None


def _inside(rows: list[Row]) -> float:
    """How often the last target that counts stands elsewhere in the rows, too."""
    return float(sum(row["stop_inside"] for row in rows)) if _recorded(rows) else 0.0


def _is_word(rows: list[Row], limits: Limits) -> bool:
    """Whether the last target that counts stands in the middle of texts, as a full stop does."""
    inside = _inside(rows)
    after = float(np.average([row["stop_after"] for row in rows if row["stop_inside"]])) if inside else np.nan
    return inside >= limits["inside"] and after < limits["after"]


def _is_written(rows: list[Row], last: _Last) -> bool:
    """Whether the longest row of most batches ends in it, too, so that it is no padding there."""
    return last.apart or sorted(row["end_least"] for row in rows)[len(rows) // 2] == 1


def _ends_texts(rows: list[Row], limits: Limits, last: _Last, is_known: bool) -> bool:
    """Whether the last target that counts is what ends a text, so that the model learns to write it."""
    if _is_word(rows, limits):
        return False
    # Once at the end of the longest row of every batch, a known end was written: what stands before it ends no text.
    if is_known and all(row["end_least"] == 1 for row in rows):
        return False
    # Padding that fills all rows to one length looks like an end that is masked; beside an end symbol it is none.
    padded = not is_known and texts.mean(rows, "stop_same") >= limits["ended"]
    return bool(_inside(rows)) or padded or not _is_written(rows, last) or not _recorded(rows)


def _ends_alone(rows: list[Row], limits: Limits) -> bool:
    """Whether one id is the commonest last target of most batches, as one of several ends: final states, say."""
    common = max({row["stop_id"] for row in rows}, key=lambda one: sum(row["stop_id"] == one for row in rows))
    same = [row for row in rows if row["stop_id"] == common]
    return len(same) >= limits["stopped"] * len(rows) and texts.mean(same, "stop_same") >= limits["several"]
