"""Files of adapters that lack what is trained beside the adapters, such as a new head that was unfrozen by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
FILE: Final = "adapter_model"  # what PEFT calls them, in any format


def finding(process: Process, saves: list[Row], rule: str) -> Finding | None:
    """Where no file, at any step, holds it: files of the same step belong together, and the last one tells."""
    last = {int(row["step"]): row for row in saves}
    adapters = {int(row["step"]): row for row in saves if str(row["file"] or "").startswith(FILE)}
    if not adapters or not all(row.get("beside_adapters") for row in last.values()):
        return None
    at = max(adapters)
    row, count = adapters[at], int(last[at]["beside_adapters"])
    names = ", ".join(str(last[at]["names"] or "").split(", ")[:count])
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"Adapter files lack {plural(count, 'tensor')} that the training changes beside the adapters",
        summary=(
            "PEFT saves adapters, and of the model beneath them only what modules_to_save names. "
            f"{row['file']}, written after step {at:,}, lacks {plural(count, 'trained tensor')} of that model, and no "
            "other file holds what it lacks. "
            f"Among those missing: {names}. Whoever loads the adapter starts these from fresh values."
        ),
        fix="Name the modules in modules_to_save: PEFT then trains a copy of each, and saves it with the adapter. "
        "Leave out the lines that unfreeze them by hand.",
        fix_code=f"lora_config.modules_to_save = {_modules(names)}  # before get_peft_model(model, lora_config)",
        first_step=min(adapters),
        last_step=at,
        evidence=[
            Evidence("trained tensors beside the adapters that no file holds", count, "tensors"),
            Evidence("trained tensors", int(last[at]["held"]), "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Parts that are saved in another way, or trained for this run alone.",
    )


def _modules(names: str) -> str:
    """The modules whose parameters these are, as modules_to_save takes them."""
    bare = [name.strip().removeprefix("base_model.").removeprefix("model.") for name in names.split(",")]
    found = list(dict.fromkeys(name.rpartition(".")[0] for name in bare if "." in name))
    return "[" + ", ".join(f'"{one}"' for one in found or ["classifier"]) + "]"
