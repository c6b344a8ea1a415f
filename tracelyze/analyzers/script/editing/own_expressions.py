"""Examples that keep what the script's own line computes: its mask, its generator, its order."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import ParsedLine, is_function_of_torch, name_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

SEED: Final = "torch.randint(2**31, ()).item()"
"""A number that any kind of generator takes as its seed."""
_GENERATORS: Final = ("RandomState", "default_rng", "Random", "Generator", "PCG64", "manual_seed", "seed")
_NEW_ORDER: Final = "order = torch.randperm(len(x))  # anew for every epoch, before its first batch"
_MASK: Final = r"\w[\w.]*?(?:\[[^\]]*\])?(?:\.unsqueeze\([-\d]+\))*"
_CAST: Final = r"\.(?:to|type_as|type)\([\w. ]+\)|\.(?:float|half|bfloat16|double|int|long)\(\)"
_CONDITION: Final = re.compile(r"if [\w. ]+:")


def seeded_by_torch(place: Location | None) -> str | None:
    """The line that seeds a generator, with a seed drawn from torch's: it stays one of its kind."""
    line = parsed_line.of(place)
    calls = [call for call in line.calls(*_GENERATORS) if len(call.args) == 1 and not call.keywords] if line else []
    seeds = [call.args[0] for call in calls if not isinstance(call.args[0], ast.Call)]
    return line.with_parts({seeds[0]: SEED}) if line is not None and len(seeds) == 1 else None


def power_above_zero(line: ParsedLine) -> str | None:
    """The only power of the line that has no number for its base and no whole one for its exponent, of what is never
    exactly zero."""
    sums = [one for one in ast.walk(line.tree) if isinstance(one, ast.BinOp)]
    powers = [one for one in sums if isinstance(one.op, ast.Pow) and _may_be_root(one)]
    calls = [call for call in line.calls("pow") if isinstance(call.func, ast.Attribute)]
    if len(powers) != 1 or calls:
        return None
    base, exponent = line.operand(powers[0].left), line.operand(powers[0].right)
    return line.with_parts({powers[0]: f"{base}.clamp(min=1e-6) ** {exponent}"})


def _may_be_root(power: ast.BinOp) -> bool:
    exponent = power.right.value if isinstance(power.right, ast.Constant) else 0.5
    whole = isinstance(exponent, int | float) and float(exponent).is_integer()
    return not whole and not isinstance(power.left, ast.Constant)


def mask_before_softmax(process: Process, softmax: Location | None) -> Diff | None:
    """The edit of the script's own lines that puts the mask which it applies behind the softmax on the scores: shaped
    as it is there, and with the lowest number, since -inf makes NaN of a row that is masked as a whole."""
    lines = recorded_text.around(process, softmax) if softmax else {}
    made = parsed_line.of(softmax)
    statement = made.statement if made is not None else None
    if softmax is None or made is None or not isinstance(statement, ast.Assign) or len(made.calls("softmax")) != 1:
        return None
    (call,) = made.calls("softmax")
    by_function = parsed_line.is_function_of_torch(call.func)
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    scores = call.args[0] if by_function and call.args else holder
    if not isinstance(scores, ast.Name) or lines.get(softmax.line, "").strip() != softmax.source:
        return None
    known = recorded_text.names_torch(process, softmax.file)
    lowest = f"torch.finfo({scores.id}.dtype).min" if known else 'float("-inf")'
    weights = re.escape(made.text_of(statement.targets[0]))
    for number in range(softmax.line + 1, softmax.line + 4):
        text = lines.get(number, "").strip()
        filled = re.fullmatch(rf"{weights} = {weights}\.masked_fill_?\((?P<hidden>.+), 0(?:\.0?)?\)", text)
        kept = re.fullmatch(rf"{weights} (?:\*= |= {weights} \* )(?P<mask>{_MASK})(?:{_CAST})?", text)
        hidden = filled["hidden"] if filled else f"{kept['mask']} == 0" if kept else None
        if hidden:
            return _moved_up(softmax, lines, number, f"{scores.id} = {scores.id}.masked_fill({hidden}, {lowest})")
    return None


def _moved_up(softmax: Location, lines: dict[int, str], number: int, masked: str) -> Diff | None:
    """What the mask on line `number` does, above the softmax: under its condition, where it is all that stands there;
    None in another block."""
    removed = [lines[at] for at in range(softmax.line, number + 1)]
    depths = [recorded_text.indent_of(one) for one in removed]
    if len(set(depths)) == 1:
        return Diff(softmax.file, softmax.line, removed, [removed[0][: depths[0]] + masked, *removed[:-1]])
    after = next((one for at, one in sorted(lines.items()) if at > number and one.strip()), "")
    ends = recorded_text.indent_of(after) <= depths[0] and after and not after.strip().startswith(("else", "elif"))
    made, *between, body = removed
    if len(between) != 1 or depths[1] != depths[0] or not _CONDITION.fullmatch(between[0].strip()) or not ends:
        return None
    return Diff(softmax.file, softmax.line, removed, [*between, body[: depths[-1]] + masked, made])


def stacked(process: Process, place: Location | None) -> str:
    """The line of a collate function that takes a field of the first sample alone, `x = samples[0]["a"]`, with that
    field of all samples; empty where it takes another."""
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign):
        return ""
    fields = [
        node
        for node in ast.walk(own.parsed.tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Subscript)
        and isinstance(node.value.value, ast.Name)
        and isinstance(node.value.slice, ast.Constant)
        and node.value.slice.value == 0
    ]
    if len(fields) != 1 or not isinstance(fields[0].value, ast.Subscript):
        return ""
    samples = own.parsed.text_of(fields[0].value.value)
    field = f"sample[{own.parsed.text_of(fields[0].slice)}]"
    rows = f"torch.stack([torch.as_tensor({field}) for sample in {samples}])"
    shaped = statement.value  # `samples[0]["a"].view(1, 1)`: a row of this shape
    if isinstance(shaped, ast.Call) and isinstance(shaped.func, ast.Attribute) and shaped.func.value is fields[0]:
        sizes = [own.parsed.text_of(one) for one in shaped.args]
        if shaped.func.attr in ("view", "reshape") and len(sizes) > 1 and sizes[0] == "1" and "-1" not in sizes:
            rows += f".{shaped.func.attr}({', '.join(['-1', *sizes[1:]])})"
    return own.parsed.with_parts({statement.value: rows})


def in_a_new_order(place: Location | None) -> str:
    """An order that is drawn for each epoch, and the script's own line that cuts batches, with rows of that order."""
    line = parsed_line.of(place)
    counted = line.calls("arange") if line is not None else []
    if line is not None and len(counted) == 1 and len(counted[0].args) == 1:
        holder = f"{line.text_of(counted[0].func.value)}." if isinstance(counted[0].func, ast.Attribute) else ""
        name = "permutation" if holder in ("np.", "numpy.") else "randperm"
        holder = f"{holder}random." if name == "permutation" else holder
        return f"{line.with_parts({counted[0].func: holder + name})}  # anew for every epoch, before its first batch"
    nodes = list(ast.walk(line.tree)) if line is not None else []
    slices = [node for node in nodes if isinstance(node, ast.Slice)]
    cuts = [node for node in nodes if isinstance(node, ast.Subscript) and node.slice in slices]
    if line is None or not cuts or len(cuts) < len(slices) or not all(one.lower for one in slices):
        return f"{_NEW_ORDER}\nx, y = x[order], y[order]"
    first = min(cuts, key=lambda node: node.col_offset)
    parts = {one.slice: f"order[{line.text_of(one.slice)}]" for one in cuts}
    return f"{_NEW_ORDER.replace('len(x)', f'len({line.text_of(first.value)})')}\n...\n{line.with_parts(parts)}"


def called_whole(line: ParsedLine) -> str | None:
    """The line with `model(x)` in place of its only `model.forward(x)`."""
    calls = line.calls("forward")
    call = calls[0] if len(calls) == 1 else None
    model = call.func.value if call and isinstance(call.func, ast.Attribute) else None
    return line.with_parts({call.func: line.text_of(model)}) if call and model and name_of(model) else None


def squashed(call: ast.Call) -> ast.expr | None:
    """What a softmax, sigmoid or the like is applied to: as a function of torch to its first argument, as the method of
    a tensor to that; None for a module, and where more than a dimension is given."""
    if is_function_of_torch(call.func):
        return call.args[0] if call.args else None
    own = call.func.value if isinstance(call.func, ast.Attribute) else None
    dimensions = [*call.args, *(one.value for one in call.keywords if one.arg == "dim")]
    numbers = [one.operand if isinstance(one, ast.UnaryOp) else one for one in dimensions]
    plain = all(isinstance(one, ast.Constant) and type(one.value) is int for one in numbers)
    of_tensor = own is not None and not (isinstance(own, ast.Name) and own.id in ("self", "nn", "np", "scipy", "jax"))
    return own if of_tensor and plain and len(numbers) == len(call.args) + len(call.keywords) <= 1 else None
