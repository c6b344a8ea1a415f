"""The script's own line that says what adapters train beside the frozen rest: with the embedding and the head, or with
what a file of adapters lacks."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.remade import frameworks
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_CONFIGURES: Final = r"LoraConfig\s*\("
_UNFREEZES: Final = re.compile(r"\brequires_grad(?:_\s*\(\s*(?:True\s*)?\)|\s*=\s*True\b)")


def saving(process: Process, modules: Sequence[str]) -> tuple[Location | None, Diff | None]:
    """The only line that configures adapters, and its edit that has PEFT train and save these modules as well."""
    places = [one for one in process.locations("adapters-text") if re.search(_CONFIGURES, one.source)]
    own = own_statement.at(process, places[0]) if len(places) == 1 else None
    call = own.only_call("LoraConfig") if own is not None else None
    if own is None or call is None:
        return places[0] if len(places) == 1 else None, None
    names = list(modules)
    given = next((one.value for one in call.keywords if one.arg == "modules_to_save"), None)
    if given is not None:
        listed = given.elts if isinstance(given, ast.List) else []
        names = [str(one.value) for one in listed if isinstance(one, ast.Constant)] + names
        if len(names) != len(listed) + len(modules) or not listed:
            return places[0], None
    return places[0], own.changed(own.with_argument(("LoraConfig",), "modules_to_save", json.dumps(names)))


def unfrozen_by_hand(process: Process) -> Location | None:
    """The only line of the script that makes parameters trainable."""
    lines = [one for one in process.locations("freeze") if _UNFREEZES.search(one.source)]
    return lines[0] if len(lines) == 1 else None


def training_rows(process: Process, parameter: str) -> tuple[Location | None, str]:
    """The line that says what adapters train beside the frozen rest, and that line with the embedding and the head."""
    path = parameter.rpartition(".")[0]
    if path and not frameworks.peft(process):
        return None, f'model.get_submodule("{path}").requires_grad_(True)  # above the line that makes the optimizer'
    embedding = path.rpartition(".")[2] or "embed_tokens"
    kept = f'["{embedding}", "lm_head"]'
    rows = "\n# or trainable_token_indices=new_ids, for the new rows alone"
    example = f"LoraConfig(r=8, modules_to_save={kept}){rows}"
    made = [one for one in process.tables["modules"].records() if str(one["kind"]).startswith("Peft")]
    wrapped = process.site(made[0]["made_at"]) if made else None
    place = script_lines.only(process, "adapters-text", _CONFIGURES) or _beside(process, wrapped)
    if place is None:
        return wrapped, example
    own = own_statement.at(process, place)
    call = own.only_call("LoraConfig") if own is not None else None
    if own is None or call is None:
        return place, example
    given = next((one.value for one in call.keywords if one.arg == "modules_to_save"), None)
    if given is not None:
        listed = given.elts if isinstance(given, ast.List) else []
        names = [one.value for one in listed if isinstance(one, ast.Constant)]
        if not names or len(names) != len(listed) or embedding in names:
            return place, example
        kept = json.dumps([embedding, *names])
    text = own.with_argument(("LoraConfig",), "modules_to_save", kept)
    return place, own.dedented(text) + rows if text else example


def _beside(process: Process, wrapped: Location | None) -> Location | None:
    """The only line that makes a LoraConfig around the one that wraps the model."""
    lines = recorded_text.of_function(process, wrapped) if wrapped is not None else {}
    at = [number for number, line in lines.items() if "LoraConfig(" in line]
    if wrapped is None or len(at) != 1:
        return None
    return wrapped.at(at[0], lines[at[0]])
