"""How the rows of ids that a language model was given begin and end, and which of their targets count.

All of it is computed where the ids are, as tensors without dimensions: nobody waits. Position `t` of `target` is what
the model is to say after the ids up to `t`.
"""

from __future__ import annotations

import math
from typing import Any

from tracelyze.collectors.tensors.saved_values import saved
from tracelyze.collectors.tensors.targets.sequences import Sequences

FEW_ROWS, FEW_COLUMNS = 8, 256  # of which every id is set beside every other one
COLUMNS = (
    "ids_next", "end_id", "end_rows", "end_least", "end_counts", "stop_id", "stop_same", "stop_inside", "stop_after",
    "behind_id", "behind_rows", "behind_counts", "targets_least", "targets_most", "begin_id", "begin_twice", "prefix",
    "prefix_share", "separator", "separator_share", "parts", "crosses", "answers", "answers_cut",
)  # fmt: skip
Values = dict[str, Any]


def columns(torch: Any, attending: list[Any], sequences: Sequences) -> Values:
    """Columns of a row of loss_calls. `attending`: operations behind the scores that make attention's weights."""
    ids, target, counts = sequences.ids, sequences.target, sequences.counts()
    end = ids[:, -1].mode().values
    tail = (ids == end).flip(1).cumprod(1).flip(1).bool()
    found = {"ids_next": _next(torch, ids, target, counts)}
    found |= _ends(torch, end, tail, target, counts) | _behind(torch, ids, tail, target, counts)
    found |= _begins(torch, ids, tail, end)
    found |= _shared_start(torch, ids, counts) | _separator(torch, ids, tail, counts)
    return found | _parts(torch, attending, ids, tail, end, _answers(torch, target, counts), counts)


def best(torch: Any, rows: list[Values]) -> Values:
    """The row of the embedding whose next ids are the targets: positions and segments are embedded, too."""
    if len(rows) < 2:
        return rows[0] if rows else {}
    index = torch.stack([row["ids_next"].nan_to_num(-1.0) for row in rows]).argmax().reshape(1)
    return {name: torch.stack([row[name].double() for row in rows]).gather(0, index)[0] for name in rows[0]}


def _next(torch: Any, ids: Any, target: Any, counts: Any) -> Any:
    """Share of the targets that are the id of the next position, where that is another one. NaN: there are none."""
    informative = (ids[:, 1:] != ids[:, :-1]) & counts[:, :-1]
    return ((ids[:, 1:] == target[:, :-1]) & informative).sum() / informative.sum()


def _ends(torch: Any, end: Any, tail: Any, target: Any, counts: Any) -> Values:
    """The id that rows end in, and what the last target of each row is."""
    numbers = counts.sum(1)
    last = _last(torch, counts)
    some = last >= 0
    stop, times = _commonest(target.gather(1, last.clamp(min=0).unsqueeze(1)).squeeze(1), some)
    least = tail.sum(1).amin()
    cut = (tail.any(1) | (target[:, -1] == end)).all()  # rows were given without their last id, which is a target
    return {
        "end_id": end,
        "end_rows": (tail.sum(1) > 0).double().mean(),
        "end_least": torch.where(least > 0, least, cut),
        "end_counts": (counts & (target == end)).sum(),
        "stop_id": stop,
        "stop_same": times / some.sum().clamp(min=1),
        "targets_least": numbers.amin(),
        "targets_most": numbers.amax(),
    }


def _behind(torch: Any, ids: Any, tail: Any, target: Any, counts: Any) -> Values:
    """What stands behind the last target that counts: the commonest id of those with which a row ends but for what
    fills it up. And whether that last target is a word like others: where else it stands, and what follows it there."""
    last, length = _last(torch, counts), ids.shape[1]
    at = last + 2  # of ids: that target itself is the next one's id
    seen = (last >= 0) & (at < length)
    ends = seen & (tail.sum(1) >= length - 1 - at)
    behind, times = _commonest(ids.gather(1, at.clamp(max=length - 1).unsqueeze(1)).squeeze(1), ends)
    stop, _ = _commonest(target.gather(1, last.clamp(min=0).unsqueeze(1)).squeeze(1), last >= 0)
    few, places = ids[:FEW_ROWS, :FEW_COLUMNS], torch.arange(min(length, FEW_COLUMNS), device=ids.device)
    inside = ((few == stop) & (places != last[:FEW_ROWS].unsqueeze(1) + 1) & ~tail[:FEW_ROWS, :FEW_COLUMNS])[:, :-1]
    alone = -1 - torch.arange(inside.numel(), device=ids.device)  # a number of its own for each place that is another
    followers = torch.where(inside.flatten(), few[:, 1:].flatten(), alone)
    follower = torch.where(inside.any(), followers.mode().values, 0)
    number = inside.sum()
    return {
        "behind_id": torch.where(ends.any(), behind, -1),
        "behind_rows": times / seen.sum().clamp(min=1),
        "behind_counts": (counts & (target == behind)).sum() * ends.any(),
        "stop_inside": number,
        "stop_after": (followers == follower).sum() / number,
    }


def _last(torch: Any, counts: Any) -> Any:
    """The position of the last target that counts, -1 where none does, shape [rows]."""
    places = torch.arange(counts.shape[1], device=counts.device)
    return torch.where(counts, places, -1).amax(1)


def _commonest(values: Any, among: Any) -> tuple[Any, Any]:
    """The value that most of these rows have, and how many do."""
    times = ((values.unsqueeze(0) == values.unsqueeze(1)) & among.unsqueeze(0) & among.unsqueeze(1)).sum(1)
    return values.gather(0, times.argmax().reshape(1))[0], times.amax()


def _begins(torch: Any, ids: Any, tail: Any, end: Any) -> Values:
    """The id that rows begin with, after what fills them up on the left, and whether it stands there twice."""
    lead = ids[:, 0].mode().values
    run = (ids == lead).cumprod(1).sum(1)
    padded = (run.amax() > run.amin()) & (run.amax() > 2)
    start = (run * padded).clamp(max=ids.shape[1] - 1)
    one, two, three = (
        ids.gather(1, (start + ahead).clamp(max=ids.shape[1] - 1).unsqueeze(1))[:, 0] for ahead in range(3)
    )
    begin = one.mode().values
    twice = (one == begin) & (two == begin) & (three != begin)
    places = torch.arange(ids.shape[1], device=ids.device)
    inside = (places < start.unsqueeze(1)) | (places > start.unsqueeze(1) + 1)
    elsewhere = ((ids == begin) & inside & ~(tail & (end == begin))).sum()
    return {"begin_id": begin, "begin_twice": twice.double().mean() * (elsewhere == 0)}


def _shared_start(torch: Any, ids: Any, counts: Any) -> Values:
    """The positions that hold the same ids in all rows from the start, and their share of the targets that count.

    None where rows do not differ at all: what they share is then the whole text.
    """
    alike = (ids == ids[:1]).all(0).cumprod(0)
    length = alike.sum() * ~alike.all()
    places = torch.arange(ids.shape[1], device=ids.device)
    share = (counts & (places < length - 1)).sum() / counts.sum().clamp(min=1)
    return {"prefix": length, "prefix_share": share}


def _separator(torch: Any, ids: Any, tail: Any, counts: Any) -> Values:
    """The first id that stands in every row exactly once, within it: what parts a prompt from its answer. Behind what
    ends a text nothing stands but what fills the row up."""
    few, filled, counted = (one[:FEW_ROWS, :FEW_COLUMNS] for one in (ids, tail, counts))
    times = (few.unsqueeze(1) == few[0].unsqueeze(0).unsqueeze(2)).sum(2)
    places = torch.arange(few.shape[1], device=ids.device)
    once = (times == 1).all(0) & (places > 0) & ~filled[0]
    place = torch.where(once, places, few.shape[1]).amin().clamp(max=few.shape[1] - 1)
    separator = few[0].gather(0, place.reshape(1))[0]
    at = (few == separator).int().argmax(1)
    before = places < at.unsqueeze(1) - 1
    share = (counted & before).sum() / counted.sum().clamp(min=1)
    answers = (counted & ~filled & (places > at.unsqueeze(1))).sum(1).amin()  # one behind it ends the text
    known = once.any() & (ids != ids[:1]).any() & (at.amin() > 0) & (answers > 1)
    return {"separator": torch.where(known, separator, -1), "separator_share": share * known}


def _answers(torch: Any, target: Any, counts: Any) -> Any:
    """Which sample of its row each position belongs to, shape [rows, length], where answers tell: behind the targets
    that count, others follow that do not, and the last one of the former is the same id in all answers. 0: they do
    not, or rows hold no more than one."""
    ends = counts & ~torch.cat([counts[:, 1:], counts[:, -1:]], 1)
    ends[:, -2:] = False  # where the row ends, and not the answer
    stop = torch.where(ends, target, -1).amax()
    alike = (~ends | (target == stop)).all()
    behind = torch.cat([torch.zeros_like(ends[:, :2]), ends[:, :-2]], 1)  # a target is the id of the next position
    return behind.cumsum(1) * alike


def _closed(torch: Any, ids: Any, tail: Any, end: Any, answers: Any) -> tuple[Any, Any]:
    """`tail` and `end` of rows that hold several samples, and which an id of its own fills up: the id in which the last
    sample of each row ends, and that with what fills up. Behind each such id the next sample begins as all rows do, or
    an answer is over. Rows that are packed have less to fill up than one sample more would take."""
    apart = tail.any(1).all() & ~((ids == end) & ~tail).any()
    length = (~tail).sum(1, keepdim=True)
    last = ids.gather(1, (length - 1).clamp(min=0))[:, 0]
    whole = tail | (torch.arange(ids.shape[1], device=ids.device) >= length - 1)
    inside = ((ids == last[0]) & ~whole)[:, :-1]
    begins = (ids[:, 0] == ids[0, 0]).all() & (~inside | (ids[:, 1:] == ids[0, 0])).all()
    answered = (~inside | (answers[:, 1:] > answers[:, :-1])).all()
    room = tail.sum(1).median() <= length.sum() / (inside.sum() + ids.shape[0])
    several = apart & (last == last[0]).all() & inside.any() & (begins | answered) & room
    return torch.where(several, whole, tail), torch.where(several, last[0], end)


def _parts(torch: Any, attending: list[Any], ids: Any, tail: Any, end: Any, answers: Any, counts: Any) -> Values:
    """How many samples a row holds, if one id ends or begins all of them, and the largest weight between them.

    Where all rows go on alike after their first id, a further sample does so, too: an id that is followed by another
    one is the mark of a section ("### Response"), or of a turn. `answers`: to what they belong where rows are cut
    anywhere, and no id begins or ends all of them.
    """
    tail, end = _closed(torch, ids, tail, end, answers)
    first = ids[:, 0].mode().values
    ends = (tail.sum(1) > 0).double().mean() >= (ids[:, 0] == first).double().mean()
    mark = torch.where(ends, end, first)
    inside = (ids == mark) & ~(tail & ends)
    inside[:, 1:] &= ids[:, 1:] != ids[:, :-1]  # one that is doubled is one
    inside[:, 0] = False
    second = ids[:, min(1, ids.shape[1] - 1)]
    goes_on = torch.cat([ids[:, 1:] == second[0], torch.zeros_like(inside[:, :1])], 1)
    inside &= goes_on | ends | (second != second[0]).any() | (ids.shape[0] < 2)
    whole = torch.where(ends, tail.any(1), ids[:, 0] == first).all()
    number = (1 + inside.sum(1)).double().mean() * whole
    after = torch.cat([torch.zeros_like(inside[:, :1]), inside[:, :-1]], 1)  # a sample ends behind its end symbol
    part = torch.where(whole, torch.where(ends, after, inside).cumsum(1), answers)
    other = (part.unsqueeze(2) != part.unsqueeze(1)).tril(-1) & ~tail.unsqueeze(2)
    weights = [_across(torch, node, other) for node in attending]
    unknown = not weights or any(one is None for one in weights)
    crosses = torch.full((), math.nan, device=ids.device) if unknown else torch.stack(weights).amax()
    held, cut = (1 + answers.amax(1)).double().mean(), counts[:, 0].double().mean()
    return {"parts": number, "crosses": crosses, "answers": held, "answers_cut": cut}


def _across(torch: Any, node: Any, other: Any) -> Any:
    """The largest weight that attention gives to another sample of the row; 1 where nothing but the order hides it."""
    if hasattr(node, "_saved_is_causal") or hasattr(node, "_saved_attn_mask"):
        mask = saved(node, "attn_mask") if hasattr(node, "_saved_attn_mask") else None
        if mask is None:
            return torch.ones((), device=other.device) if getattr(node, "_saved_is_causal", False) else None
        given = mask if mask.dtype is torch.bool else mask > torch.finfo(mask.dtype).min / 2
    else:
        given = saved(node, "result")
    if given is None or given.dim() < 2 or given.shape[-2:] != other.shape[1:] or given.numel() > 2**24:
        return None
    given = given.detach().reshape(-1, *given.shape[-2:])
    if given.shape[0] % other.shape[0] == 0:
        given = given.reshape(other.shape[0], -1, *given.shape[-2:]).amax(1)
    elif given.shape[0] != 1:
        return None
    return (given.float() * other).amax()
