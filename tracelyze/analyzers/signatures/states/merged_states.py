"""Weights of a file that a script merges into the state of the model by name: those that do not fit are left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.signatures.states import prefixes
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
    events = [(row["time"], row["text"]) for row in process.events.records() if row["kind"] == "kept-weights"]
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
        why = "The names of the file are not those of the model."
        code = 'print(list(state)[:5], list(model.state_dict())[:5])  # perhaps state["model"] or state["state_dict"]'
    else:
        why = f"The file holds them in another size (first {kept['inner'][0]}), so that it is of another configuration."
        code = "model = Model(**checkpoint['config'])  # the sizes that the file was trained with"
    count, name = f"{kept['kept']} of {kept['expected']}", str(kept["name"])[:24]
    return Finding(
        rule=rule,
        severity="critical" if nothing else "warning",
        confidence="certain" if nothing and known else "likely",
        title=f"{name} kept {count} of its own tensors when {'a file' if nothing else 'its file'} was loaded",
        summary=(
            f"The script merges {kept['file'] or 'a file'} into the state of the model by name, and loads the result: "
            f"{count} tensors that load_state_dict was given were the model's own. {why} That is no error, because the "
            "model's own tensors stand in for those that are left out: they went on as they were initialised."
        ),
        fix="Make the names and sizes match, and look at what load_state_dict says does not fit.",
        fix_code=f"{code}\nresult = model.load_state_dict(state, strict=False)\nprint(result)",
        first_step=1,
        first_second=kept["time"],
        evidence=[
            Evidence("tensors that stayed the model's own", kept["kept"] / kept["expected"], "share"),
            Evidence("inner layers of another size in the file", kept["layers"], "layers", limits["layers"],
                     limits.source("layers")),
            Evidence("tensors in the file", plural(kept["tensors"], "tensor")),
        ],
        location=process.site(kept["site"]),
        false_alarm="A model that takes only a few layers out of a file of another model, on purpose.",
    )  # fmt: skip
