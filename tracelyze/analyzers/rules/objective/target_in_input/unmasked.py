"""The line to change where attention sees what follows: it calls the layers without a mask, or makes the weights."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of, parse

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_MASKED: Final = re.compile(r"mask|causal", re.IGNORECASE)
_PADDING: Final = re.compile(r"\w*pad\w*", re.IGNORECASE)  # a mask of its own
_FUSED: Final = "scaled_dot_product_attention"
_CALL: Final = re.compile(
    r"(?P<before>.*?self\.(?P<name>\w+)\()(?P<given>(?P<first>[A-Za-z_]\w*)(?:, [\w.=]+)*)(?P<after>\).*)"
)
_MAKES: Final = re.compile(  # a layer that attends: others, as an LSTM, have a batch_first of their own
    r"^(?!\s*class\b).*\b(?:TransformerEncoderLayer|TransformerDecoderLayer|MultiheadAttention|Transformer)\("
)
_BATCH_FIRST: Final = re.compile(r"\bbatch_first\s*=\s*True\b")
_CALL_FUSED: Final = re.compile(rf"(?P<before>.*{_FUSED}\()(?P<given>[\w., =]+)(?P<after>\).*)")
_ARGUMENTS: Final = {  # by the layer's class, how its call takes the mask
    "TransformerEncoder": "mask=mask, is_causal=True",
    "TransformerEncoderLayer": "src_mask=mask, is_causal=True",
    "TransformerDecoder": "tgt_mask=mask, tgt_is_causal=True",
    "TransformerDecoderLayer": "tgt_mask=mask, tgt_is_causal=True",
    "MultiheadAttention": "attn_mask=mask, is_causal=True",
}
_ANY: Final = (
    "mask = nn.Transformer.generate_square_subsequent_mask(x.size(1), device=x.device)\n"
    "h = encoder(x, mask=mask, is_causal=True)\n"
    "# or: F.scaled_dot_product_attention(q, k, v, is_causal=True)"
)
_IN_FRONT: Final = (
    "# scores: what this softmax is taken of\n"
    "future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)\n"
    "scores = scores.masked_fill(future, float('-inf'))"
)


def place(process: Process) -> Location | None:
    """The only line of the model that attends, and that speaks of no mask: by a layer of torch's, by its function, or
    by a softmax between two products."""
    lines = [*process.locations("attending-layer"), *process.locations("attention")]
    lines += [one for one in process.locations("dropout") if _FUSED in one.source]
    lines = [one for one in lines if not _MASKED.search(_PADDING.sub("", one.source))]
    return script_lines.only_of(lines)


def example(process: Process, line: Location | None) -> str:
    """How that line masks what follows; a general example where it is not known how it attends."""
    if line is None:
        return _ANY
    if line.source in {one.source for one in process.locations("attention")}:
        return _IN_FRONT
    fused = _CALL_FUSED.fullmatch(line.source)
    if fused is not None:
        return f"{fused['before']}{fused['given']}, is_causal=True{fused['after']}"
    call = _CALL.fullmatch(line.source)
    kinds = {
        row["kind"]
        for row in process.tables["modules"].shared_records()
        if call is not None and str(row["module"]).rpartition(".")[2] == call["name"]
    }
    mask = _ARGUMENTS.get(kinds.pop(), "") if len(kinds) == 1 else ""
    if call is None or not mask:
        return _of_a_statement(process, line) or _ANY
    return f"{_mask_of(process, call['first'])}{call['before']}{call['given']}, {mask}{call['after']}"


def _of_a_statement(process: Process, line: Location) -> str:
    """The statement of several lines that stands there, with the mask as an argument of its only layer of torch's."""
    own, kinds = own_statement.at(process, line), dict[str, set[str]]()
    for row in process.tables["modules"].shared_records():
        kinds.setdefault(str(row["module"]).rpartition(".")[2], set()).add(str(row["kind"]))
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)] if own is not None else []
    named = {call: kinds.get(name_of(call.func), set()) & set(_ARGUMENTS) for call in calls}
    layers = [call for call, of in named.items() if len(of) == 1 == len(kinds[name_of(call.func)])]
    given = layers[0].args[0] if len(layers) == 1 and layers[0].args else None
    if own is None or not own.is_whole or not isinstance(given, ast.Name):
        return ""
    layer, text = name_of(layers[0].func), own.text
    for argument in _ARGUMENTS[named[layers[0]].pop()].split(", "):
        parsed, (name, value) = parse(text), argument.split("=")
        again = parsed.calls(layer) if parsed is not None else []
        text = (parsed.with_argument(again[0], name, value) or "") if parsed is not None and len(again) == 1 else ""
    return f"{_mask_of(process, given.id)}{own.dedented(text)}" if text else ""


def _mask_of(process: Process, given: str) -> str:
    """The line that makes the mask for what the layer is given; of a layer that may not be batch_first, with a note."""
    made = f"mask = nn.Transformer.generate_square_subsequent_mask({given}.size(1), device={given}.device)\n"
    layers = [own_statement.at(process, one) for one in recorded_text.matching(process, _MAKES)]
    known = layers and all(one is not None and _BATCH_FIRST.search(one.text) for one in layers)
    return made if known else f"# size(0) without batch_first\n{made}"
