"""Lines that the script's text holds (roles of the table sites), and that evidence of what happened points at.

That such a line stands in the script is all that is known of it. So one is named only where there is no other, but for
a few that stand beside it (`only_of`).
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.candidates import bounds
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

MODULE: Final = "<module>"
_INDICES: Final = r"\brand(?:int|perm)\s*\("
_CUT: Final = re.compile(r"\w\[\s*[A-Za-z_(][^\],:]*:")  # x[start:stop], of samples; x[:, 1:] is of another dimension
_SPLITS: Final = re.compile(r"\b(?:random_split|train_test_split)\s*\(")
_GLOBAL_SEED: Final = (
    r"\b(?:torch\.(?:random\.)?manual_seed|random\.seed|seed_everything|set_seed|(?<![\w.])manual_seed)\s*\("
)
_OF_TORCH: Final = r"\btorch\.(?:random\.)?manual_seed\s*\(|(?<![\w.])manual_seed\s*\(|\bseed_everything\s*\("
_EACH_EPOCH: Final = r"^on_(?:train_|validation_|test_)?epoch_|^on_(?:validation|eval\w*|sanity_check)_?"
_HANDLES_EPOCHS: Final = r"@[\w.]+\.on\(\s*Events\.EPOCH_"
_MADE_SEEDED: Final = r"\b(?:default_rng|RandomState|Random)\s*\("  # a generator that is made with its seed
_UNSEEDED: Final = r"\b(?:default_rng|RandomState|Random)\s*\(\s*(?:None\s*)?\)"  # by the operating system
_DROPS: Final = r"(?<!self\.)\b(?:dropout\w*|\w+_dropout)\s*\(|\bdropout_p\s*="
_BY_MODE: Final = r"\btraining\b"
_MODE_AT: Final = 5  # the place of `training` in batch_norm, and of `use_input_stats` in instance_norm
FILLS: Final = "fills weights or biases by constant_, fill_ or uniform_, zero biases and ones aside"
_FILLING: Final = r"\b(?:constant_|fill_|uniform_)\s*\("
_NEUTRAL: Final = (
    r"\bbias\b.*[,(]\s*(?:val=)?0(?:\.0*)?\s*\)|[,(]\s*(?:val=)?1(?:\.0*)?\s*\)"  # biases, scales of norms
)
_OF_WEIGHTS: Final = r"\binit\.\w+_\s*\(|\b(?:weight|bias|weights|biases)\b"  # others make up data, or a mask
_SHORT: Final = (
    r"\bset_default_dtype\s*\(|\.data\s*=(?!=)|\b\w*dtype\s*=(?!=)\s*(?:torch\.)?(?:bfloat16|float16|half)\b"
)
_BREAKS: Final = re.compile(r"[\w)\]] /=? (?![\d.]+\b)|\b(?:log(?:2|10|1p)?|sqrt|rsqrt)\s*\(|\*\*\s*0?\.5\b")
_KEEPS: Final = re.compile(  # parameters, in a list or the like; no number of them, and no optimizer's
    r"^[\w.]+(?:\s*:[^=]+)?\s*=(?!=)(?!.*(?:numel|\bsum|\blen|optim|Adam|SGD)).*parameters\(\).*\.requires_grad\b"
)
_PAST_NAN: Final = re.compile(r"^(?!.*nan_to_num).*[A-Za-z_\])]\s*-\s*(?:\w+\.)?nan(?:mean|median|min)\s*\(.*/")
_SHIFTS: Final = r"(?:\[|,|\+)\s*1\s*:|\broll\s*\("
_TARGETS: Final = (
    r"\b(?:\w*labels?|\w*targets?|tgt|goals?|ys?|y_\w+)\b[\"']?\]?(?:\[[^=]*\])?\s*(?:=(?!=)|:)|\byield\b|\breturn\b"
)
_SAMPLES: Final = ("dataset", "collate", "sample")  # roles of what reads samples and puts them together
_TOGETHER: Final = 6  # lines: what one stretch of a function does
_VALIDATION: Final = re.compile(
    r"^\s*(?:(?:self\.)?\w*(?:val|test|dev|eval|held)\w*\s*(?::[^=]+)?=|([\"'])\w*(?:val|test|dev|eval|held)\w*\1\s*:)",
    re.IGNORECASE,
)
_HANDED_BACK: Final = re.compile(r"\s*(?:\w*loss\w*\s*=(?!=)|return\b)")
_PART: Final = re.compile(r"\s*[\w.\[\]]+\.(?P<part>\w+)\s*(?::[^=]+)?=(?!=)\s*(?:\w+\.)*[A-Z]\w*\(")
_WHOLE: Final = r"\s*\d+(?:\.0*)?(?![\d.])"
_COUNTED: Final = r"\s*\(?\s*(?:\w+\.)*_?(?:epoch|step|iter|count)"
_POWERS: Final = (  # with no whole exponent, nor one that counts, as that of a decay
    rf"(?:(?<=[)\]])|\b[A-Za-z_]\w*)\s*\*\*=?(?!{_WHOLE})(?!{_COUNTED})|\bpow\s*\((?!{_WHOLE}\s*\))(?![^()]*,{_WHOLE}\s*\))"
)
_OF_NUMBERS: Final = re.compile(r"(?<![\w.])(?:torch\.)?(?:as_tensor|tensor|Tensor|FloatTensor)\s*\(")
_SHOWN: Final = re.compile(r"^(?:print|\w*log\w*\.\w+|return\b.*\.item\(\))")  # of a value that no loss is made of
_IN_WORDS: Final = {  # what the collector calls an operation (singular_operations.py), and how a script writes it
    "log": r"\blog\s*\(", "log2": r"\blog2\s*\(", "log10": r"\blog10\s*\(", "log1p": r"\blog1p\s*\(",
    "sqrt": r"sqrt\s*\(|\*\*\s*0?\.5\b", "rsqrt": r"rsqrt\s*\(", "norm": r"norm\s*\(", "std": r"\bstd(?:_mean)?\s*\(",
    "var": r"\bvar(?:_mean)?\s*\(",
    "cdist": r"\bcdist\s*\(", "division": r"[^/]/[^/]", "reciprocal": r"\breciprocal\s*\(",
    "acos": r"\b(?:acos|arccos)\s*\(", "asin": r"\b(?:asin|arcsin)\s*\(", "atanh": r"\batanh\s*\(",
    "acosh": r"\bacosh\s*\(", "logit": r"\blogit\s*\(", "erfinv": r"\berfinv\s*\(", "a power": _POWERS,
}  # fmt: skip


def only(process: Process, role: str, pattern: str = "") -> Location | None:
    """The line of this role whose text matches, if there is one; the first one of a few that stand together."""
    return only_of([one for one in process.locations(role) if re.search(pattern, one.source)])


def shifting(process: Process) -> Location | None:
    """The only line that shifts targets by one position: where samples are read or put together, else in another
    function of the script that does not evaluate."""
    lines = [one for one in process.locations("shift") if re.search(_SHIFTS, one.source)]
    made = process.functions(*_SAMPLES)
    apart = process.functions("evaluation")
    inside = [one for one in lines if one.file_function in made]
    named = [one for one in lines if re.search(_TARGETS, one.source) and one.file_function not in apart]
    return only_of([one for one in named if one in inside] or inside) or only_of(named)


def rewarding(process: Process, seen: Location | None) -> Location | None:
    """The only function of the script that is named after rewards, where a library's loop, not a line of the script,
    computes the loss (`trainer.train()`): such a loop calls it."""
    steps = {one.file_line for one in process.locations("step")}
    return only(process, "reward") if seen is not None and seen.file_line in steps else None


def cut(process: Process) -> Location | None:
    """The only line that cuts a graph (detach, no_grad, numpy), where the script does not evaluate or run its loop.
    None where values with a graph were read there besides: by float(), or into a new tensor."""
    apart = _evaluating(process) | process.functions("backward", "step")
    read = [one for one in process.locations("read") if _OF_NUMBERS.search(one.source)]  # with a graph or without
    lines = [*process.locations("cut"), *process.locations("read-graph"), *read]
    return only_of([one for one in lines if one.file_function not in apart and not _SHOWN.search(one.source)])


def of_numbers(process: Process) -> list[Location]:
    """The lines that make tensors of numbers which they read from tensors with graphs, where the script does not
    evaluate or run its loop; empty where they do not stand together."""
    apart = _evaluating(process) | process.functions("backward", "step")
    lines = [one for one in process.locations("read-graph") if _OF_NUMBERS.search(one.source)]
    lines = [one for one in lines if one.file_function not in apart]
    return sorted(lines, key=lambda one: one.line) if only_of(lines) is not None else []


def flat(process: Process, operations: list[str]) -> Location | None:
    """The only line outside of evaluations that calls one of these operations; of several the only one in a forward."""
    apart = _evaluating(process)
    pattern = rf"\b(?:{'|'.join(map(re.escape, operations))})_?\s*\("
    lines = [one for one in process.locations("flat") if re.search(pattern, one.source)]
    lines = [one for one in lines if one.file_function not in apart and "detach(" not in one.source]
    inside = [one for one in lines if one.function == "forward"]
    return lines[0] if len(lines) == 1 else inside[0] if len(inside) == 1 else None


def _evaluating(process: Process) -> set[tuple[str, str]]:
    """The functions that evaluate, by their text or since a validation pass ran in them."""
    places = [process.site(site) for site in process.evals["site"]]
    return process.functions("evaluation") | {one.file_function for one in places if one is not None}


def made_anew(process: Process) -> Location | None:
    """The only line, in a function that calls backward, that makes a tensor with requires_grad=True of numbers. Where a
    framework calls backward, one in the function that calls the model: of a loss, or of what is returned."""
    beside = process.functions("backward")
    around = process.functions("training-call")
    lines = process.locations("anew")
    handed = [one for one in lines if one.file_function in around and _HANDED_BACK.match(one.source)]
    return only_of([one for one in lines if one.file_function in beside]) or only_of(handed)


def replaced(process: Process, names: list[str]) -> Location | None:
    """The only line that gives an object another part which holds all tensors of these names: `model.head = ...`."""
    holders = [set(name.split(".")[:-1]) for name in names]
    common = set.intersection(*holders) if holders else set()
    lines = [(found["part"], one) for one in process.locations("part-text") if (found := _PART.match(one.source))]
    return only_of([one for part, one in lines if part in common])


def singular(process: Process, step: int | None = None) -> Location | None:
    """The line of the operation that can have made the first gradients NaN (those of `step`): of the operations that
    the collector names, the first that stands in a single line of the script."""
    events = process.events_of("nonfinite-gradient")
    events = events if step is None or (events and abs(events[0]["step"] - step) <= 1) else []
    return singular_of(process, (events[0]["text"] or "").split(", ") if events else [])


def singular_of(process: Process, operations: list[str]) -> Location | None:
    """The line of the first of these operations whose lines are known, as :func:`singular_together` has them."""
    return next((lines[0] for one in operations if (lines := singular_together(process, one))), None)


def singular_together(process: Process, operation: str) -> list[Location]:
    """The lines of this operation whose text keeps nothing away from 0, else all its lines; none where they do not
    stand together."""
    name = re.split(r" (?:at|of|by|below)\b", operation)[0]
    lines = [one for one in process.locations("singular") if re.search(_IN_WORDS.get(name, r"(?!)"), one.source)]
    lines = [one for one in lines if is_differentiated(process, one)]
    for found in ([one for one in lines if not bounds.is_bounded(process, one)], lines):
        if only_of(found) is not None:
            return sorted({one.file_line: one for one in found}.values(), key=lambda one: one.line)
    return []


def is_differentiated(process: Process, line: Location) -> bool:
    """Whether a backward may run through what the line computes: it neither makes objects or samples nor evaluates, and
    in the function of the loop it stands within it, before its last backward."""
    trains = process.functions("backward", "training-call")
    if line.function == "__init__" or line.file_function in process.functions(*_SAMPLES) | (
        process.functions("evaluation", "eval-mode") - trains
    ):
        return False
    own = {role: [one.line for one in process.locations(role) if one.file_function == line.file_function]
           for role in ("backward", "loop")}  # fmt: skip
    if own["backward"] and line.line > max(own["backward"]):
        return False
    text = recorded_text.around(process, line)
    depths = [recorded_text.indent_of(text.get(at, "")) for at in own["loop"] if at < line.line]
    within = any(recorded_text.indent_of(text.get(line.line, "")) > depth for depth in depths)
    return within or not own["loop"] or line.line not in text


def singular_beside(process: Process, place: Location) -> Location | None:
    """The only line among those that were recorded from a place on, in its function, which can make NaN or Inf of
    finite numbers: by a division, a logarithm or a root."""
    text = recorded_text.around(process, place)
    lines = [(number, code_of(line).strip()) for number, line in sorted(text.items()) if number >= place.line]
    found = [(number, line) for number, line in lines if _BREAKS.search(line)]
    return place.at(*found[0]) if len(found) == 1 else None


def validation_set(process: Process, dataset: str) -> Location | None:
    """The only line that makes such a data set, of the script's own, under the name of a validation set."""
    made = [one for one in process.locations("data") if f"{dataset}(" in one.source]
    return only_of([one for one in made if _VALIDATION.match(one.source)])


def batches(process: Process) -> Location | None:
    """What gives the loop its batches without a loader: the only generator that it asks, in which the only line that
    hands out cuts them where it does; else the loop's own `for`."""
    makers = process.locations("batches")
    maker = only_of(makers)
    handed = [one for one in process.locations("yields") if maker and one.function == maker.function]
    if len(handed) == 1 and _CUT.search(handed[0].source):
        return handed[0]
    return maker if makers else only(process, "loop")


def split(process: Process) -> Location | None:
    """The only line that calls a function which splits data; else the only one that splits them by indices, or that
    shuffles them before they are cut. What a generator of batches, or the loop itself, draws is the order of an
    epoch."""
    batched = process.functions("batches")
    apart = batched | process.functions("backward")
    lines = [one for one in process.locations("split") if one.file_function not in batched]
    called = [one for one in lines if _SPLITS.search(one.source)]
    found = only_of(called) or only_of([one for one in lines if one.file_function not in apart]) or only_of(lines)
    return found or only_of([one for one in process.locations("shuffle") if one.file_function not in apart])


def drawn_batches(process: Process) -> Location | None:
    """What gives the loop its batches without a loader: the line in the loop that draws indices, or the only function's
    that does; else as :func:`batches`."""
    drawn = [one for role in ("draw", "split") for one in process.locations(role)]
    loop, end = process.location("loop"), process.location("backward")
    if loop is not None and end is not None:
        inside = [one for one in drawn if one.file_function == loop.file_function]
        inside = [one for one in inside if loop.line < one.line <= end.line]
        if inside:
            return min(inside, key=lambda one: one.line)
    elsewhere = [one for one in drawn if one.function != MODULE and re.search(_INDICES, one.source)]
    if loop is not None and end is not None:
        text = recorded_text.of_function(process, end)
        body = "\n".join(code_of(said) for at, said in text.items() if loop.line <= at <= end.line)
        asked = [one for one in elsewhere if re.search(rf"(?<![\w.]){re.escape(one.function)}\(", body)]
        elsewhere = asked or elsewhere
    return only_of(elsewhere) or batches(process)


def past_missing(process: Process) -> Location | None:
    """The only line that normalises by statistics which pass over NaN (`np.nanmean`): it leaves the NaN where it is."""
    return only_of([one for one in process.locations("singular") if _PAST_NAN.search(one.source)])


def reseeded(process: Process) -> Location | None:
    """The line that seeds in a loop, or in a function that iterates a loader and makes neither it nor an optimizer;
    else the one that seeds all in a method that a framework calls as an epoch or a validation begins or ends.

    Of no generator of NumPy's or Python's that is made with its seed: a loader draws from none of them.
    """
    once = process.functions("dataloader", "optimizer")
    read = process.functions("loader") - once
    seeds, again = ([one for one in process.locations(role) if not makes_generator(one)] for role in ("seed", "reseed"))
    called = [one for one in seeds if each_epoch(process, one) and seeds_all(one)]
    return only_of(again or [one for one in seeds if one.file_function in read] or called)


def each_epoch(process: Process, line: Location) -> bool:
    """Whether the line stands in a method that a framework calls as an epoch or a validation begins or ends, or in a
    handler of Ignite that is."""
    handles = any(re.match(_HANDLES_EPOCHS, one) for one in recorded_text.decorators(process, line))
    return handles or re.search(_EACH_EPOCH, line.function) is not None


def orders(line: Location, loader: Mapping[str, Any]) -> bool:
    """Whether the line seeds what torch's own sampler draws the order of this loader from."""
    of_torch = re.search(_OF_TORCH, line.source) is not None
    return of_torch and loader.get("sampler") == "RandomSampler" and not loader.get("own_generator")


def moved_up(line: Location) -> str:
    """A line that seeds as an example where it belongs; empty where it is no whole call."""
    said = code_of(line.source).strip()
    where = f"  # once, above the loop over epochs, and no longer on line {line.line}"
    return said + where if said.endswith(")") and _whole(line) and "=" not in said.split("(")[0] else ""


def reseeded_by_hand(process: Process) -> Location | None:
    """The line that seeds, without a loader, in a function that makes batches, or trains on them, and no optimizer:
    a generator as a whole, or one that is made there with its seed."""
    once = process.functions("optimizer")
    makers = process.locations("batches")
    read = process.functions("batches", "backward") - once
    again = process.locations("reseed") + [one for one in makers if makes_generator(one)]
    seeds = again or [one for one in process.locations("seed") if one.file_function in read]
    return only_of([one for one in seeds if not re.search(_UNSEEDED, one.source)])


def makes_generator(line: Location) -> bool:
    """Whether the line makes a generator of NumPy's or Python's."""
    return re.search(_MADE_SEEDED, line.source) is not None


def filled(process: Process) -> Location | None:
    """The only place that fills tensors with a constant, or evenly between two numbers; it may draw others besides."""
    places = [one for one in process.locations("fill") if re.search(_FILLING, one.source)]
    places = [one for one in places if not re.search(_NEUTRAL, one.source)]
    return only_of([one for one in places if re.search(_OF_WEIGHTS, one.source)] or places)


def always_dropping(process: Process) -> list[Location]:
    """The lines that call a function which drops values whatever the mode of the model is, by file and number."""
    lines = [one for one in process.locations("dropout") if re.search(_DROPS, one.source) and _whole(one)]
    return sorted((one for one in lines if not re.search(_BY_MODE, one.source)), key=lambda one: one.file_line)


def always_normalising(process: Process) -> Location | None:
    """The only line that calls torch.nn.functional.batch_norm, or its like, other than by the mode of the model."""
    return only_of([one for one in process.locations("batch-norm") if _in_each_mode(process, one)])


def _in_each_mode(process: Process, place: Location) -> bool:
    """Whether a functional normalisation is given a mode that does not mention the module's own."""
    own = own_statement.at(process, place)
    call = own.only_call("batch_norm", "instance_norm") if own is not None else None
    if own is None or call is None or any(isinstance(one, ast.Starred) for one in call.args):
        return False
    named = [one.value for one in call.keywords if one.arg in ("training", "use_input_stats")]
    given = named or call.args[_MODE_AT : _MODE_AT + 1]
    return bool(given) and re.search(r"\.training\b", own.parsed.text_of(given[0])) is None


def into_eval_mode(process: Process) -> Location | None:
    """The only line that puts a model into eval mode."""
    return only(process, "eval-mode", r"\.eval\s*\(\s*\)")


def trainable(process: Process) -> Location | None:
    """The only line that keeps the parameters which are trainable when it runs, other than for an optimizer."""
    made = {one.file_line for one in process.locations("optimizer")}
    lines = [one for one in process.locations("trainable") if one.file_line not in made]
    return only_of([one for one in lines if _KEEPS.search(one.source)])


def made_short(process: Process) -> Location | None:
    """The line that makes weights 16-bit numbers: the module's cast, else the only line in the text that sets the type
    of all tensors, writes cast ones into `data`, or makes something of such a type."""
    lines = [one for one in process.locations("sixteen") if "autocast" not in one.source]
    return only(process, "cast") or only_of([one for one in lines if re.search(_SHORT, one.source)])


def cast_to_float16(process: Process) -> Location | None:
    """The only line that opens a region of autocast to float16, of several the one in a function that trains; without
    one the only line that names that type."""
    named = {one.file_line: one for one in process.locations("sixteen")}
    lines = [one for one in named.values() if re.search(r"\btorch\.(?:float16|half)\b", one.source)]
    lines = [one for one in lines if "bfloat16" not in one.source]
    regions = [one for one in lines if "autocast" in one.source] or lines
    trains = process.functions("training-call", "backward")
    regions = [one for one in regions if one.file_function in trains] or regions
    return regions[0] if len(regions) == 1 else None


def seeds(process: Process) -> Location | None:
    """The line that seeds torch, Python or NumPy as a whole, and no generator of its own: the first of them."""
    lines = [one for one in process.locations("seed") if seeds_all(one)]
    return min(lines, key=lambda one: one.line, default=None) if len({one.file for one in lines}) == 1 else None


def seeds_all(line: Location | None) -> bool:
    """Whether the line seeds torch, Python or NumPy as a whole, so that all that is drawn after it repeats."""
    return line is not None and re.search(_GLOBAL_SEED, line.source) is not None


def said(line: Location | None, what: str, where: str = "of the script") -> str:
    """A sentence about such a line, empty where there is none."""
    return f" Line {line.line} is the only place {where} that {what}." if line is not None else ""


def _whole(place: Location) -> bool:
    """Whether the line holds the whole call, all arguments of it."""
    return place.source.count("(") == place.source.count(")")


def only_of(lines: list[Location]) -> Location | None:
    """The first of these lines, where they stand together in one function: they then count as one place.

    Where lines that stand together do different things (two regions, two calls), callers ask for a single one instead.
    """
    first = min(lines, key=lambda one: one.line, default=None)
    if first is None or len({one.file_function for one in lines}) > 1:
        return None
    return first if max(one.line for one in lines) - first.line <= _TOGETHER else None
