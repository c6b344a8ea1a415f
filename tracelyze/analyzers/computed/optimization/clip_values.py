"""What a repaired clip says: its limit in few digits, its line, and the learning rate that fits it."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.optimization import accumulation
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

FUNCTION: Final = "clip_grad_norm_"
CLIPS: Final = (FUNCTION, "clip_gradients")
"""Torch's function, and the method of Lightning and Fabric."""
LIMITS: Final = ("max_norm", "gradient_clip_val")
RETURNED: Final = 2
"""`steps.grad_norm_source` of a norm that the clip returned: before it cut, and as it saw the gradient."""
RATES: Final = ("lr", "learning_rate")
ORDINARY: Final = 10
"""A norm up to it needs no reason of its own: the largest max_norm of published recipes (T5 and BERT clip at 1, word
language models at 0.25, Sutskever et al. 2014 at 5, Graves 2013 at 10)."""
PLAIN: Final = 1000
"""Two digits of a number above it are written out: 120000, not 1.2e+05."""
USUAL: Final = 1e-3
"""Update per weight and step: about a tenth of a percent (update-ratio)."""
TENFOLD: Final = 10
"""The least raise that shows."""
LARGEST: Final = 1e-2
"""A rate for Adam or SGD above it is the exception."""
TENTH: Final = 0.1
"""The usual first try of a lower rate."""
HIGHEST: Final = 1000
"""Steps are made longer by no more at once: what one does then has to be seen first."""


def written(value: float) -> str:
    """Two digits of the value, as code."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:.0f}" if rounded >= PLAIN else f"{rounded:g}"


def place_of(optimization: Optimization) -> Location | None:
    """The only line that clips."""
    places = optimization.process.locations("clip")
    return places[0] if len(places) == 1 else None


def clips_all(optimization: Optimization) -> bool:
    """Whether the script's only line that clips says that it is all of the model which training calls, or what the
    optimizer is given, and not one tensor or group after another."""
    line, made = parsed_line.of(place_of(optimization)), parsed_line.of(optimization.made_at)
    clips = line.calls(FUNCTION) if line else []
    given = [*clips[0].args[:1], *(one.value for one in clips[0].keywords if one.arg == "parameters")] if clips else []
    if line is None or len(clips) != 1 or len(given) != 1:
        return False
    held = [call.args[0] for call in made.calls(str(optimization.facts.get("name"))) if call.args] if made else []
    if made is not None and any(made.text_of(one) == line.text_of(given[0]) for one in held):
        return True
    whole = given[0].func if isinstance(given[0], ast.Call) and not given[0].args else None
    if not isinstance(whole, ast.Attribute) or whole.attr != "parameters":
        return False
    called = re.compile(rf"(?<![\w.]){re.escape(line.text_of(whole.value))}\(")
    return any(called.search(one.source) for one in optimization.process.locations("training-call"))


def own_line(optimization: Optimization, limit: str = "") -> str:
    """The script's only line that clips, with all that it does beside, and with another limit where one is given: what
    reads its result goes on to work. Torch's own call where that line is no statement of its own, with the limit that
    was recorded if no other is given."""
    own = own_statement.at(optimization.process, place_of(optimization))
    call = own.only_call(*CLIPS) if own is not None else None
    if own is None or call is None or not isinstance(own.parsed.statement, ast.Expr | ast.Assign | ast.AugAssign):
        return f"torch.nn.utils.{FUNCTION}(model.parameters(), max_norm={limit or _recorded(optimization) or '1.0'})"
    given = _limit_of(call)
    return own.dedented(own.parsed.with_parts({given: limit}) if limit and given is not None else own.text)


def _recorded(optimization: Optimization) -> str:
    """The limit that the clips had in the median, as code; empty without any."""
    steps = optimization.steps
    limits = steps["clip_max_norm"] if steps.has("clip_max_norm") else np.array([])
    known = limits[np.isfinite(limits) & (limits > 0)]
    return f"{float(np.median(known)):g}" if len(known) else ""


def _limit_of(call: ast.Call) -> ast.expr | None:
    """What a clip is given as its limit; without a name it is second, but for Fabric's, which names it."""
    named = [one.value for one in call.keywords if one.arg in LIMITS]
    second = call.args[1:2] if parsed_line.name_of(call.func) == FUNCTION or len(call.args) == 2 else []
    by_value = any(one.arg == "clip_val" for one in call.keywords)
    return next(iter(named or [one for one in second if not isinstance(one, ast.Starred) and not by_value]), None)


def without_the_rate(optimization: Optimization, least: float) -> str:
    """The script's clip with the other factor as its limit, where that is a product with the learning rate by name;
    empty where it is none, or would still leave less than `least` of the usual gradient."""
    line = parsed_line.of(place_of(optimization))
    calls = line.calls(FUNCTION) if line else []
    product = _limit_of(calls[0]) if len(calls) == 1 else None
    if line is None or not isinstance(product, ast.BinOp) or not isinstance(product.op, ast.Mult):
        return ""
    others = [one for one in (product.left, product.right) if parsed_line.name_of(one) not in RATES]
    norm, limit, rate = (float(np.nanmedian(optimization.steps[one])) for one in ("grad_norm", "clip_max_norm", "lr"))
    enough = rate > 0 and limit / rate >= least * norm
    return own_line(optimization, line.text_of(others[0])) if len(others) == 1 and enough else ""


def once_complete(optimization: Optimization) -> str:
    """The script's clip where it acts on all micro-batches of a step: behind the last one's backward; of `accelerate`,
    whose loop has no line of its own for that, once the gradients are complete."""
    code = own_line(optimization)
    own = own_statement.at(optimization.process, place_of(optimization))
    call = own.only_call(FUNCTION) if own is not None else None
    holder = call.func.value if call is not None and isinstance(call.func, ast.Attribute) else None
    if own is not None and holder is not None and parsed_line.name_of(holder).lower().endswith("accelerator"):
        return f"if {own.parsed.text_of(holder)}.sync_gradients:\n{textwrap.indent(code, '    ')}"
    return f"{code}  # only here\noptimizer.step()"


def rate_for(optimization: Optimization, factor: float) -> str:
    """The line that gives the rate, with so many times the rate, below a line of an example; empty if not known. What
    a schedule makes of the rate stays as it is."""
    rate = schedulers.given_rate(optimization) if optimization.steps.known("lr").any() else 0.0
    return f"\n{schedulers.with_rate(optimization, rate * factor, rate)}" if rate > 0 else ""


def beside_the_limit(optimization: Optimization, raised: float, falls: float) -> tuple[str, str]:
    """What to do with the rate of an optimizer whose steps grow with the gradient, where the limit is raised by this
    factor; and the line of an example that does it. A loss that still fell by the share `falls` at the end was held
    back by short steps."""
    name = str(optimization.facts.get("name"))
    if name not in accumulation.SCALE_MATTERS:
        return "", ""
    loss = optimization.steps["loss"]
    third, last = (one[np.isfinite(one)] for one in np.array_split(loss, 4)[2:])
    if len(third) and len(last) and 0 < float(np.median(last)) <= (1 - falls) * float(np.median(third)):
        return (
            f" With {name} and the same learning rate, steps are then up to {number(raised)} times as long as now. The "
            "loss still fell at the end of this run: try that first, and lower the rate if the loss rises."
        ), ""
    return (
        f" With {name}, lower the learning rate by the factor by which you raise the limit. The largest steps are "
        "then as long as now; if the loss falls slowly, raise the rate from there."
    ), rate_for(optimization, 1 / raised)


def higher_limit(optimization: Optimization, way: float) -> str:
    """The limit, as code, at which a clip makes steps of a usual length of those that went this way in all; at most the
    usual norm.

    The rate and the limit act alike, as their product. It is the limit that is far off: a rate that makes up for it is
    absurd as soon as gradients get small enough to pass the clip. Gradients of an ordinary norm get all of it, unless
    steps would be far longer than usual.
    """
    norm, limit = (float(np.nanmedian(optimization.steps[name])) for name in ("grad_norm", "clip_max_norm"))
    factor = min(USUAL * len(optimization.steps) / way if way > 0 else HIGHEST, HIGHEST)
    higher = min(limit * factor * (TENFOLD if norm <= ORDINARY else 1), norm)
    return written(higher)


def with_lower_rate(optimization: Optimization) -> str:
    """A tenth of the rate, below an example that clips: where the optimizer is made."""
    rate = rate_for(optimization, TENTH)
    return f"\n\n# and where the rate is set, a tenth of it:{rate}" if rate else ""


def usual_rate(rate: float, ratio: float) -> float:
    """The rate at which steps are of a usual length, of one at which they change the weights by `ratio` of their size;
    ten times the rate at least, and beyond that no more than any optimizer is used with."""
    usual = min(rate * USUAL / ratio, LARGEST) if ratio > 0 else 0.0
    return max(rate * TENFOLD, usual)
