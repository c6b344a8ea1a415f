"""Classes among the targets: which field of a batch holds them, and what the loss shows where none does."""

from __future__ import annotations

import json
from collections import Counter
from math import isclose, log, sqrt
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze import reading
from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.script.editing import loader_arguments

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

BINARY: Final = ("binary_cross_entropy", "binary_cross_entropy_with_logits")
_LOOKED_AT: Final = 64  # targets of a call, at most, that its spread is of
_TRAINED: Final = 1 / 3  # of the steps: before that a model may answer anything, and changes it
_OF_CLASSES: Final = ("cross_entropy", "nll_loss")
_CLASSIFY: Final = (*_OF_CLASSES, "binary_cross_entropy", "binary_cross_entropy_with_logits", "multi_margin_loss")

DRAWN_BY: Final = """classes = labels.long().flatten()  # labels: the class of each training sample
weights = 1.0 / torch.bincount(classes)[classes]
"""
"""An example: how often each sample is to be drawn. Those of a binary loss are floating-point numbers."""
SAMPLED: Final = f"""{DRAWN_BY}sampler = torch.utils.data.WeightedRandomSampler(weights, len(weights))
"""
"""An example: rare classes more often, by the sampler of a loader."""
JUDGED: Final = """# answers and labels: the classes that the model answers in a whole validation, and the right ones
hits = ((answers == {rare}) & (labels == {rare})).sum()
precision, recall = hits / (answers == {rare}).sum(), hits / (labels == {rare}).sum()  # of {named}"""
"""An example: what tells whether a rare class is found."""
_WEIGHED: Final = """counts = torch.bincount(labels).float()  # labels: the class of each training sample
criterion = nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts))"""
_POSITIVES: Final = """# labels: the class of each training sample, 0 or 1
criterion = nn.BCEWithLogitsLoss(pos_weight=(labels == 0).sum() / (labels == 1).sum())"""
_POSITIVE_SAMPLES: Final = """# labels: the class of each training sample, 0 or 1
ratio = (labels == 0).sum() / (labels == 1).sum()
loss = F.binary_cross_entropy(probabilities, targets, weight=torch.where(targets == 1, ratio, 1.0))"""


class Most(NamedTuple):
    """A class, the least share of the targets that it makes up, and how many targets that is known of."""

    name: str
    share: float
    targets: int


def at_the_loss(process: Process, pure: int) -> Most | None:
    """The class that fills batches alone, `pure` of them at least, where no other does; None if that is not seen.

    Two targets of a call are of one class with probability 1 - target_varies², the sum of the squared shares of the
    classes. The largest share is no smaller than that sum, so the mean over the calls is a lower bound.
    """
    line = _only_line(process)
    rows = [row for row in line.rows if _is_one_each(row["target_shape"])] if line is not None else []
    rows = [row for row in rows if row["target_lowest"] is not None and row["target_varies"] is not None]
    known = [one for row in rows for one in ([row] if row["target_integer"] else _of_zeros_and_ones(row))]
    if len(known) < len(rows):
        return None  # numbers: those of some calls look like classes by chance
    return _by_batches_alone(known, pure) or _by_answers(known, pure, len(process.steps))


def _only_line(process: Process) -> Line | None:
    """The line of the training that computes a loss over classes, or else over two of them, if it is the only one."""
    for functions in (_OF_CLASSES, BINARY):
        lines = [line for line in loss_calls.lines(process, functions) if line.training]
        if lines:
            return lines[0] if len(lines) == 1 else None
    return None


def _of_zeros_and_ones(row: Row) -> list[Row]:
    """A call of a binary loss with the spread of its targets as one of classes; empty unless all are zeros and ones.

    Of n numbers, k of them ones, the variance is k/n (1 - k/n). A fraction among them makes no whole number of that k.
    """
    looked_at, variance = min(_count(row), _LOOKED_AT), row["target_varies"] ** 2
    if row["function"] not in BINARY or not {row["target_lowest"], row["target_highest"]} <= {0.0, 1.0}:
        return []
    ones = looked_at * (1 - sqrt(max(0.0, 1 - 4 * variance))) / 2
    return [row | {"target_varies": sqrt(2 * variance)}] if isclose(ones, round(ones), abs_tol=1e-3) else []


def weighed(process: Process) -> str:
    """An example that gives rare classes more weight in the loss of the training."""
    line = _only_line(process)
    return {BINARY[0]: _POSITIVE_SAMPLES, BINARY[1]: _POSITIVES}.get(line.function if line else "", _WEIGHED)


def already_weighed(line: Location | None) -> str:
    """The end of a sentence, of a loss that is given weights; by the only line that gives them, where it is known."""
    at = f" in line {line.line}" if line is not None else ""
    return f": the loss is given a weight{at}. Where a rare class is missed all the same, look at how large it is."


def judged(rare: str | None) -> str:
    """How to judge a model whose loss is weighted: a sampler beside the weights would count rare classes twice."""
    name = rare.removesuffix(".0") if rare is not None else "rare"
    named = f"class {name}" if rare is not None else "`rare`, the number of a rare class"
    return JUDGED.format(rare=name, named=named)


def _by_batches_alone(known: list[Row], pure: int) -> Most | None:
    alone = [row["target_lowest"] for row in known if row["target_lowest"] == row["target_highest"]]
    if len(alone) < pure or len(set(alone)) > 1 or alone[0] < 0:
        return None
    name = alone[0]
    if not all(row["target_lowest"] <= name <= row["target_highest"] for row in known) or len(alone) == len(known):
        return None
    return _most(f"{name:.0f}", known)


def _by_answers(known: list[Row], pure: int, steps: int) -> Most | None:
    """The class that a trained model answers, and is so often right with that it has to be the frequent one.

    Large batches hardly ever hold one class alone. But an answer that is wrong costs ln 2 at least, as the class that
    was meant has a probability of one half at most: of a batch, no more than loss / ln 2 were answered wrongly.
    Its share is that of all looks or of those late ones, whichever is smaller.
    """
    late = [row for row in known if row["step"] >= _TRAINED * steps]
    names = {name for row in late for name in [_answered(row)]}
    name = names.pop() if len(names) == 1 else None
    if name is None or len(late) < pure or not any(row["target_varies"] for row in late):
        return None
    seen, trained = _most(str(name), known), _most(str(name), late)
    return seen._replace(share=min(seen.share, trained.share))


def _answered(row: Row) -> int | None:
    """The class that holds the largest share of the first targets of this call, by what the model answers; or None."""
    answer, same, loss = row.get("answer"), row.get("answer_same"), row.get("value")
    plain = row["function"] in ("cross_entropy", *BINARY) and row["reduction"] == "mean" and not row["ignored"]
    if not plain or answer is None or same is None or loss is None or not 0 <= loss < log(2):
        return None
    of_two = row["function"] in BINARY or str(row["input_shape"]).endswith("x2")
    if of_two and 2 * same < 1:  # the first sample is one of the few
        answer, same = 1 - answer, 1 - same
    count = _count(row)
    others = count * (1 - same + loss / log(2))  # at most: answered otherwise, or answered so and wrong
    return int(answer) if others < (1 - row["target_varies"] ** 2) * min(count, _LOOKED_AT) else None


def _most(name: str, rows: list[Row]) -> Most:
    share = fmean(1.0 - row["target_varies"] ** 2 for row in rows)
    return Most(name, share, sum(min(_count(row), _LOOKED_AT) for row in rows))


def _count(row: Row) -> int:
    return loss_calls.sizes(row["target_shape"])[0]


def _is_one_each(shape: str | None) -> bool:
    return str(shape or "").removesuffix("x1").isdigit()


def classes(process: Process, enough: float) -> Counter[str]:
    """How often each class was met: integers, one for each sample, or zeros and ones where a binary loss is used.

    Of the field with the most of one class, where several hold classes. What was looked at because of its loss counts
    only where there is not `enough` else: rare classes cost more.
    """
    by_place, whole = _counted(process, alerts=False), _counted(process, alerts=True)
    found = [
        max(one.values(), key=lambda it: max(it.values(), default=0), default=Counter()) for one in (by_place, whole)
    ]
    return found[0] if found[0].total() >= enough else found[1]


def _counted(process: Process, alerts: bool) -> dict[str, Counter[str]]:
    """The classes of each field, with or without batches that were looked at because of their loss."""
    counted: dict[str, Counter[str]] = {}
    for name, rows in fields(process).items():
        for row in rows:
            if alerts or not row["alert"]:
                counted.setdefault(name, Counter()).update(json.loads(row["classes"]))
    binary = bool(loss_calls.lines(process, BINARY))
    for row in process.tables["batches"].records():
        sizes = loss_calls.sizes(row["shape"])
        single = binary and "float" in str(row["dtype"]) and sizes and max(sizes[1:], default=1) == 1
        if row["trained"] and single and (alerts or not row["alert"]):
            whole = row["mean"] is not None and isclose(row["mean"], 1 - row["zeros"], rel_tol=0, abs_tol=1e-6)
            if whole and row["min"] in (0.0, 1.0) and row["max"] in (0.0, 1.0):  # nothing but zeros and ones
                ones = round((1 - row["zeros"]) * sizes[0])
                counted.setdefault(str(row["field"]), Counter()).update({"0": sizes[0] - ones, "1": ones})
    return {name: +one for name, one in counted.items()}


def sampled_at(optimization: Optimization, line: Location | None) -> Location | None:
    """The line that makes the loader, where the example writes it anew, or a framework's loop computes the loss, and no
    line of the script does; else that of the loss."""
    process, step = optimization.process, optimization.step_location
    made = process.site(optimization.loader.get("made_at"))
    in_loop = line is not None and step is not None and line.file_line == step.file_line
    written = loader_arguments.with_arguments(process, made, {"sampler": "sampler"}, "shuffle", True)
    return made if made is not None and (in_loop or written is not None) else line


def fields(process: Process) -> dict[str, list[Row]]:
    """The looks at fields of batches that were trained on, which hold a class for each sample, by field.

    One whole number for each sample may be the length of a sequence or a place in a table as well. What the loss was
    given tells: the same numbers at the same step, or else as many of them, and none that it has no score for.
    """
    found: dict[str, list[Row]] = {}
    trained = [row for row in process.tables["batches"].records() if row["trained"]]
    for row in trained:
        if row["classes"]:
            found.setdefault(str(row["field"]), []).append(row)
    calls = [row for row in process.tables["loss_calls"].records() if row["training"]]
    if not calls or any(row["target_shape"] is None for row in calls):
        return {name: rows for name, rows in found.items() if not _are_lengths(name, rows, trained)}
    scored = [row for row in calls if _is_of_classes(row)]
    return {name: rows for name, rows in found.items() if _is_target(rows, scored)}


def _is_of_classes(call: Row) -> bool:
    """Whether a call of a loss has one class for each sample as its target, or the shares of all classes (smoothed)."""
    shape = str(call["target_shape"])
    one_each = _is_one_each(shape)
    return call["function"] in _CLASSIFY and (one_each or not (call["target_integer"] or call["function"] in BINARY))


def _is_target(rows: list[Row], scored: list[Row]) -> bool:
    """Whether the looks at a field are looks at the target of one of these calls."""
    seen = {row["step"]: [float(one) for one in reading.parse_object(row["classes"])] for row in rows}
    whole = [row for row in scored if row["target_integer"] and row["target_lowest"] is not None]
    beside = [row for row in whole if seen.get(row["step"])]
    if beside:
        return any(
            (min(seen[row["step"]]), max(seen[row["step"]])) == (row["target_lowest"], row["target_highest"])
            for row in beside
        )
    most = max((max(values) for values in seen.values() if values), default=0.0)
    largest = max(loss_calls.sizes(row["shape"])[0] for row in rows)
    for row in scored:
        shape = loss_calls.sizes(row["input_shape"])
        scores = 2 if row["function"] in BINARY else shape[1] if len(shape) > 1 else None
        if loss_calls.sizes(row["target_shape"])[0] <= largest and (scores is None or most < scores):
            return True
    return False


def are_mixed(process: Process, most: str, least: float) -> bool:
    """Whether no batch of `least` targets and more is without the class that is the most frequent of those counted.
    Where one is, the order is that of the classes, and what was looked at says nothing about their shares."""
    looks = [reading.parse_object(row["classes"]) for rows in fields(process).values() for row in rows]
    if any(sum(counts.values()) >= least and not counts.get(most) for counts in looks):
        return False
    line = _only_line(process)
    calls = [row for row in line.rows if _is_of_classes(row) and row["target_integer"]] if line is not None else []
    ends = [(row["target_lowest"], row["target_highest"]) for row in calls if _count(row) >= least]
    return all(low is None or high is None or low <= float(most) <= high for low, high in ends)


def _are_lengths(name: str, rows: list[Row], trained: list[Row]) -> bool:
    """Whether a field is named after lengths, or its largest number always is the longest sequence of the batch."""
    if "len" in name.lower():
        return True
    longest: dict[tuple[int, int], set[int]] = {}
    for row in trained:
        longest.setdefault((row["loader"], row["step"]), set()).update(loss_calls.sizes(row["shape"])[1:2])
    highest = [(row, max(float(one) for one in reading.parse_object(row["classes"]))) for row in rows]
    return all(most in longest[row["loader"], row["step"]] for row, most in highest)
