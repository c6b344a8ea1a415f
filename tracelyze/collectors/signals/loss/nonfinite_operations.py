"""Which operation of a loss was the first whose result is not finite, as told by what autograd saved of it.

The backward has yet to run, so that what went into a logarithm or a division is still there. An operation is named only
where its own input shows it: a zero in it, an overflow in its result. A NaN goes on to everything that follows, so
of several operations those count that have no other behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tracelyze.collectors.signals.gradients import hidden_rows, singular_operations
from tracelyze.collectors.tensors import graphs, saved_values
from tracelyze.collectors.tensors.safe_computing import is_plain

MAX_LOOKED_AT: Final = 200  # tensors of one graph
MAX_LEAVES: Final = 10_000
CHOOSES: Final = frozenset(  # whose result need not hold what went in
    {"Where", "Clamp", "ClampMin", "ClampMax", "NanToNum", "MaskedFill", "MaskedSelect", "Maximum", "Minimum"}
) | {"Index", "IndexSelect", "Gather", "Select", "Slice", "Max", "Min", "Topk", "Sort", "NllLoss", "NllLoss2D"}


class Broken(NamedTuple):
    """An operation, in words; which of its kind in the graph, in the order in which they ran, and of how many.
    `reaches`: nothing chooses among its results on their way to the loss."""

    what: str
    reaches: bool
    kind: str
    place: int
    of: int


class _Test(NamedTuple):
    """`saved`: the tensor to look at. `goes_on`: what came from before may look the same, and has to be seen finite."""

    saved: str
    told: Callable[[Any], str]
    goes_on: bool = False


def _log(name: str, pole: float = 0.0) -> Callable[[Any], str]:
    def told(value: Any) -> str:
        if bool((value < pole).any()):
            return f"{name} of a number below {pole:g}"
        return f"{name} of {pole:g}" if bool((value == pole).any()) else ""

    return told


def _if_any(what: str, where: Callable[[Any], Any]) -> Callable[[Any], str]:
    return lambda value: what if bool(where(value).any()) else ""


_MASKED: Final = "softmax of a row that is masked throughout"
_TESTS: Final = {
    "Log": _Test("self", _log("log")),
    "Log2": _Test("self", _log("log2")),
    "Log10": _Test("self", _log("log10")),
    "Log1P": _Test("self", _log("log1p", -1.0)),
    "Div": _Test("other", _if_any("division by 0", lambda value: value == 0)),
    "Reciprocal": _Test("result", _if_any("reciprocal of 0", lambda value: value.isinf())),
    "Rsqrt": _Test("result", _if_any("rsqrt of 0", lambda value: value.isinf())),
    "Exp": _Test("result", _if_any("exp of too large a number", lambda value: value.isinf()), goes_on=True),
    "Sqrt": _Test("result", _if_any("sqrt of a number below 0", lambda value: value.isnan()), goes_on=True),
    "Acos": _Test("self", _if_any("acos of a number beyond 1", lambda value: value.abs() > 1)),
    "Asin": _Test("self", _if_any("asin of a number beyond 1", lambda value: value.abs() > 1)),
    "Atanh": _Test("self", _if_any("atanh of a number from 1 on", lambda value: value.abs() >= 1)),
    "Softmax": _Test("result", _if_any(_MASKED, lambda value: value.isnan()), goes_on=True),
}
_OF_ZERO: Final = ("log of 0", "log2 of 0", "log10 of 0")
_ADDED_UP: Final = ("Log", "Log2", "Log10", "Sum", "Mul", "Div", "Unsqueeze", "Squeeze", "View", "Expand", "Clone")
_NEAR: Final = 16  # operations between a logarithm and the exponentials whose sum it takes, with weights and norms
_TINY: Final = 1e-19  # about the root of the smallest number that float32 holds: what is divided or weighted leaves it
_SPREADS: Final = {"Std": "std", "StdMean": "std", "Var": "var", "VarMean": "var"}
_CTC: Final = "CtcLoss"
_BETWEEN: Final = 4  # operations between a mask and its softmax that keep -inf what it is, of these kinds
_KEEPS: Final = frozenset({"ToCopy", "Alias", "Div", "Mul"})
_GIVEN: Final = ("self", "other", "mat1", "input")
_VIEWS: Final = frozenset({"T", "Transpose", "Permute", "View", "Unsqueeze", "Expand", "ToCopy"})
_COMPARES: Final = frozenset(
    {"MseLoss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"}
)
_SINGLE: Final = 4  # bytes of a float32
_HUGE: Final = 1e15  # a network's answer beside which another one leaves float32, at 3.4e38, is larger than that
_OF_DIFFERENCES: Final = frozenset({"Abs", "Pow"})
_FINITE_AT_THE_EDGE: Final = ("sqrt at 0", "acos at 1", "asin at 1", "acosh at 1")
_SAVED: Final = ("self", "result", "other", "mat1", "mat2", "input", "tensor1", "tensor2")


def first_broken(torch: Any, root: Any) -> list[Broken]:
    """The operations behind this autograd node that made a result that is not finite of what was; those nearest to
    the loss first. Where some are chosen from (`where`, `clamp`) and others are not, the others alone."""
    order, chosen = graphs.graph_behind(root, CHOOSES)
    if len(order) >= graphs.MAX_WALKED:
        return []
    told: dict[int, str] = {}
    tested = [one for one in order if (kind := saved_values.kind(one)) in _TESTS or kind in (*_SPREADS, _CTC)]
    for node in tested[:MAX_LOOKED_AT]:
        kind = saved_values.kind(node)
        if kind in _SPREADS:
            if _of_a_single_value(torch, node):
                told[id(node)] = f"{_SPREADS[kind]} of a single value"
            continue
        if kind == _CTC:
            if (told_of := _too_long_to_spell(torch, node)) and _finite_behind(torch, node):
                told[id(node)] = told_of
            continue
        test = _TESTS[kind]
        value = _number(torch, saved_values.saved(node, test.saved))
        what = "" if value is None else test.told(value)
        if what == _MASKED and not _masked_throughout(torch, node, value):
            continue
        if what in _OF_ZERO and value is not None and _underflown(torch, node, value):
            what = f"{what.split()[0]} of exponentials that shrank to 0"
        if what and (not test.goes_on or _finite_behind(torch, node)):
            told[id(node)] = what
    first = [node for node in order if id(node) in told and not _leads_to(node, told)]
    plain = [node for node in first if id(node) not in chosen]
    return [_described(node, told[id(node)], bool(plain), order) for node in plain or first]


def _underflown(torch: Any, node: Any, value: Any) -> bool:
    """Whether each number that this logarithm takes as 0 is an exponential next to 0, or a sum of such alone."""
    zeros = value == 0
    for one, kind in graphs.walk(node, _NEAR, _ADDED_UP):
        made = _number(torch, saved_values.saved(one, "result")) if kind == "Exp" else None
        if made is None:
            continue
        under = made < _TINY
        sums = [under, *(under.all(dimension) for dimension in range(under.dim()))]
        if any(each.shape == zeros.shape and not bool((zeros & ~each).any()) for each in sums):
            return True
    return False


def _of_a_single_value(torch: Any, node: Any) -> bool:
    """Whether a spread is that of one value, divided by its number less one (Bessel's correction): NaN of any value."""
    value, correction = saved_values.saved(node, "self"), node._saved_correction
    if not isinstance(value, torch.Tensor) or not is_plain(torch, value) or not (correction is None or correction >= 1):
        return False
    dimensions = [saved_values.signed(one) % value.dim() for one in node._saved_dim or ()]
    return bool(math.prod(value.shape[one] for one in dimensions or range(value.dim())) == 1)


def _too_long_to_spell(torch: Any, node: Any) -> str:
    """The first target of a CTC loss that has more labels than time steps, with a blank between two equal ones, in
    words: its loss is infinite whatever the scores are. Empty without one."""
    loss, targets = _number(torch, saved_values.saved(node, "result0")), saved_values.saved(node, "targets")
    if loss is None or not isinstance(targets, torch.Tensor) or not targets.is_cpu or node._saved_zero_infinity:
        return ""
    given, lengths = [tuple(node._saved_input_lengths), tuple(node._saved_target_lengths)]
    begins = [row * targets.shape[1] if targets.dim() > 1 else sum(lengths[:row]) for row in range(len(lengths))]
    labels = targets.reshape(-1)
    for row in loss.reshape(-1).isinf().nonzero().reshape(-1).tolist()[:MAX_LOOKED_AT]:
        own = labels[begins[row] : begins[row] + lengths[row]]
        needed = len(own) + int((own[1:] == own[:-1]).sum())
        if needed > given[row]:
            return f"ctc_loss of a target that needs {needed} time steps where {int(given[row])} are given"
    return ""


def _described(node: Any, what: str, reaches: bool, order: list[Any]) -> Broken:
    kind = saved_values.kind(node)
    alike = sorted([one._sequence_nr() for one in order if saved_values.kind(one) == kind])
    return Broken(what, reaches, kind, alike.index(node._sequence_nr()), len(alike))


def taken_in(torch: Any, root: Any) -> tuple[Any, str] | None:
    """The weight of the first operation that was given what is not finite, where that comes from outside the graph, and
    what it held: what was computed of the data alone, without a gradient."""
    order, chosen = graphs.graph_behind(root, CHOOSES - {"NllLoss", "NllLoss2D"})  # of scores that are all NaN
    inner = [node for node in order if hasattr(node, "_sequence_nr") and not hasattr(node, "variable")]
    for node in sorted(inner, key=lambda one: int(one._sequence_nr()))[:MAX_LOOKED_AT]:
        held = _not_finite(torch, node)
        if held:
            weights, outside = [_leaf(one) for one in graphs.following(node)], None in graphs.parts(node)
            known = outside and weights and all(one is not None for one in weights) and id(node) not in chosen
            return (weights[0], held) if known and len(order) < graphs.MAX_WALKED else None
    return None


def _not_finite(torch: Any, node: Any) -> str:
    """What is not finite of what an operation was given; empty where all is, or nothing was saved."""
    return next((held for name in _GIVEN if (held := _held(torch, saved_values.saved(node, name)))), "")


def _held(torch: Any, given: Any) -> str:
    """What a tensor holds that is not finite; empty where all of it is."""
    value = _number(torch, given)
    if value is None or bool(value.isfinite().all()):
        return ""
    return "NaN" if bool(value.isnan().any()) else "Inf" if bool((value == float("inf")).any()) else "-Inf"


def broken_target(torch: Any, root: Any) -> tuple[str, bool] | None:
    """What was not finite of a target: of what a loss of torch compares finite answers with, or of what these are
    subtracted from, without a gradient of its own. And whether nothing chooses among the results on their way."""
    order, chosen = graphs.graph_behind(root, CHOOSES)
    if len(order) >= graphs.MAX_WALKED:
        return None
    inner = [node for node in order if hasattr(node, "_sequence_nr") and not hasattr(node, "variable")]
    for node in sorted(inner, key=lambda one: int(one._sequence_nr()))[:MAX_LOOKED_AT]:
        held = _of_target(torch, node)
        if held:
            return (held, id(node) not in chosen) if _finite_behind(torch, node) else None
        if _not_finite(torch, node):
            return None
    return None


def _of_target(torch: Any, node: Any) -> str:
    """What is not finite of the target that this operation was given, or of what it shows of a difference to one."""
    if saved_values.kind(node) in _COMPARES and graphs.parts(node)[1:2] in ([], [None]):
        return (
            "" if _held(torch, saved_values.saved(node, "self")) else _held(torch, saved_values.saved(node, "target"))
        )
    difference = graphs.only_following(node)
    if saved_values.kind(node) not in _OF_DIFFERENCES or saved_values.kind(difference) != "Sub":
        return ""
    value = _number(torch, saved_values.saved(node, "self"))
    parts, held = graphs.parts(difference), _held(torch, value)
    if held and not _in_reach(value):
        return ""
    if len(parts) != 2 or parts.count(None) != 1 or held == "NaN":
        return held if parts.count(None) == 1 else ""
    return held if parts[0] is None else {"Inf": "-Inf", "-Inf": "Inf"}.get(held, "")


def _in_reach(value: Any) -> bool:
    """Whether the numbers beside what is not finite are small, so that none of the answers can have overflown."""
    rest = value[value.isfinite()].abs()
    return value.element_size() >= _SINGLE and bool(rest.numel()) and float(rest.max()) < _HUGE


def _leaf(node: Any) -> Any:
    """The tensor at the end of a graph, seen through views; None where something else is computed."""
    while saved_values.kind(node) in _VIEWS and len(node.next_functions) == 1:
        node = node.next_functions[0][0]
        if node is None:
            return None
    return getattr(node, "variable", None)


def broken_weight(torch: Any, root: Any) -> Any:
    """A tensor at the end of this graph that is not finite itself; None if all are, or too many to look at."""
    return next((leaf for leaf in _leaves(root) if not _all_finite(torch, leaf)), None)


def spoiled_by(torch: Any, root: Any) -> list[str]:
    """What can have made the gradients NaN that broke these weights a step before, when the loss was still a number:
    operations whose values are finite where their derivatives are not."""
    leaves = _leaves(root)
    broken = {id(leaf) for leaf in leaves if not _all_finite(torch, leaf)}
    found = singular_operations.suspects(root, {id(leaf) for leaf in leaves} - broken, broken)
    finite = (*_FINITE_AT_THE_EDGE, hidden_rows.MASKED_ROWS)
    return [what for what in found if what in finite or singular_operations.HIDDEN in what]


def _leaves(root: Any) -> list[Any]:
    order, _ = graphs.graph_behind(root, CHOOSES)
    return [leaf for node in order if (leaf := getattr(node, "variable", None)) is not None][:MAX_LEAVES]


def _all_finite(torch: Any, leaf: Any) -> bool:
    value = _number(torch, leaf)  # Added up in float64, which no sum of float32 leaves.
    return value is None or bool(value.sum(dtype=torch.float64).isfinite())


def _number(torch: Any, value: Any) -> Any:
    """A tensor of real numbers in the host's memory, detached; None if it is something else."""
    if not isinstance(value, torch.Tensor) or not is_plain(torch, value):
        return None
    return value.detach() if value.is_cpu and value.is_floating_point() and value.numel() else None


def _finite_behind(torch: Any, node: Any) -> bool:
    """Whether what was saved behind this node is finite, and there is something."""
    seen = 0
    for one in graphs.graph_behind(node, CHOOSES)[0][1:MAX_LOOKED_AT]:
        for given in (getattr(one, "variable", None), *(saved_values.saved(one, name) for name in _SAVED)):
            value = _number(torch, given)
            if value is not None:
                seen += 1
                if not bool(value.isfinite().all()):
                    return False
    return seen > 0


def _leads_to(node: Any, told: dict[int, str]) -> bool:
    """Whether another one of these stands behind it."""
    order, known = [node], {id(node)}
    for one in order:
        for behind in graphs.following(one):
            if id(behind) not in known:
                if id(behind) in told:
                    return True
                known.add(id(behind))
                order.append(behind)
    return False


def _masked_throughout(torch: Any, node: Any, result: Any) -> bool:
    """Whether the rows of NaN that a softmax put out are those which a mask filled throughout, and no others.

    Of masked_fill, where, and values set by a mask. What fills them has to be infinite then: of equal numbers that are
    finite the softmax is even.
    """
    filled = _filled(torch, node)
    if filled is None:
        return False
    dimension = saved_values.signed(node._saved_dim)
    try:
        throughout = filled.expand(result.shape).all(dimension)
    except RuntimeError:  # of other sizes
        return False
    return bool(throughout.any()) and bool((result.isnan().any(dimension) == throughout).all())


def _filled(torch: Any, node: Any) -> Any:
    """Which scores a softmax was given in place of those that were computed; None where that is not known."""
    for _ in range(_BETWEEN):
        node = node.next_functions[0][0] if node.next_functions else None
        if node is None:
            return None
        kind = saved_values.kind(node)
        if kind not in _KEEPS:
            break
    if kind == "MaskedFill":
        mask = saved_values.saved(node, "mask")
    elif kind == "Where":
        condition = saved_values.saved(node, "condition")
        computed = [one is not None for one in graphs.parts(node)]  # the scores, and not what fills in
        mask = None if condition is None or len(set(computed)) == 1 else condition != computed[0]
    elif kind == "IndexPut":
        indices = saved_values.saved_several(node, "indices")
        mask = indices[0] if len(indices) == 1 else None
    else:
        return None
    return mask if isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and mask.is_cpu else None
