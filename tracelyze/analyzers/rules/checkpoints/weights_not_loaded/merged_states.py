"""Weights of a file that a script merges into the state of the model by name: those that do not fit are left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rules.checkpoints.weights_not_loaded import prefixes
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def loads(process: Process, rows: list[Row], limits: Limits) -> list[Row]:
    """Loads by which a model kept nearly all of its own weights, or inner layers that the file has in another size.

    A later load of the same module that takes in weights from elsewhere makes up for it.
    """
    events = [(row["time"], row["text"]) for row in process.events_of("kept-weights")]
    found = []
    for time, text in events:
        kept = json.loads(text)
        later = [row for row in rows if row["module"] == kept["module"] and row["time"] > time]
        if any(not row["missing"] and not row["own"] for row in later):
            continue
        several = min(kept["expected"], kept["tensors"]) >= limits["tensors"]
        if several and (kept["kept"] >= limits["missing"] * kept["expected"] or kept["layers"] >= limits["layers"]):
            found.append(kept | {"time": time})
    return found


def finding(process: Process, kept: Row, rule: str, limits: Limits) -> Finding:
    """`kept`: what was recorded of one such load."""
    nothing = kept["kept"] >= limits["missing"] * kept["expected"]
    given, expected = kept.get("given_prefix") or "", kept.get("expected_prefix") or ""
    known = bool(kept.get("renamed")) and kept["renamed"] >= limits["unexpected"] * min(kept["kept"], kept["tensors"])
    if nothing and known:
        why = prefixes.said(given, expected, "The names in the file")
        code = prefixes.renamed(given, expected, "state", some=False)
    elif nothing:
        why = "The file's names are not the model's."
        code = 'print(list(state)[:5], list(model.state_dict())[:5])  # perhaps state["model"] or state["state_dict"]'
    else:
        why = f"The file holds them in another size (first {kept['inner'][0]}), so it comes from another configuration."
        code = "model = Model(**checkpoint['config'])  # the sizes that the file was trained with"
    count, name = f"{kept['kept']} of {kept['expected']}", str(kept["name"])[:24]
    return Finding(
        rule=rule,
        severity="critical" if nothing else "warning",
        confidence="certain" if nothing and known else "likely",
        title=f"{name} kept {count} of its own tensors when {'a file' if nothing else 'its file'} was loaded",
        summary=(
            f"The script merges {kept['file'] or 'a file'} into the state of the model by name, and loads the result: "
            f"{count} of the tensors given to load_state_dict were the model's own. {why} That raises no error, "
            "because the model's own tensors fill in for those left out: they kept their initial values."
        ),
        fix="Make the names and sizes match, and check what load_state_dict reports as missing or unexpected.",
        fix_code=f"{code}\nresult = model.load_state_dict(state, strict=False)\nprint(result)",
        first_step=1,
        first_second=kept["time"],
        evidence=[
            Evidence("tensors that were not loaded", kept["kept"] / kept["expected"], "share"),
            Evidence("inner layers whose size differs in the file", kept["layers"], "layers",
                     *limits.against("layers")),
            Evidence("tensors in the file", plural(kept["tensors"], "tensor")),
        ],
        location=process.site(kept["site"]),
        false_alarm="A model that deliberately takes a few layers from another model's file.",
    )  # fmt: skip
