"""Files of adapters that lack what is trained beside the adapters, such as a new head that was unfrozen by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script.candidates import adapters
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
FILE: Final = "adapter_model"  # what PEFT calls them, in any format


def finding(process: Process, saves: list[Row], rule: str) -> Finding | None:
    """Where no file, at any step, holds it: files of the same step belong together, and the last one tells."""
    last = {int(row["step"]): row for row in saves}
    written = {int(row["step"]): row for row in saves if str(row["file"] or "").startswith(FILE)}
    if not written or not all(row.get("beside_adapters") for row in last.values()):
        return None
    at = max(written)
    row, count = written[at], int(last[at]["beside_adapters"])
    lacking = str(last[at]["names"] or "").split(", ")[:count]
    names = ", ".join(lacking)
    modules = _modules(names)
    configures, edit = adapters.saving(process, modules)
    by_hand = adapters.unfrozen_by_hand(process)
    left_out = (
        f"what unfreezes them by hand (line {by_hand.line})" if by_hand else "the lines that unfreeze them by hand"
    )
    listed = ", ".join(f'"{one}"' for one in modules)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"Adapter files lack {plural(count, 'tensor')} that the training changes beside the adapters",
        summary=(
            "PEFT saves adapters, and of the model beneath them only what modules_to_save names. "
            f"{row['file']}, written after step {at:,}, lacks {plural(count, 'trained tensor')} of that model, and no "
            "other file holds what it lacks. "
            f"{'They are' if len(lacking) == count else 'Among them are'} {names}. "
            "Whoever loads the adapter starts these from fresh values."
        ),
        fix="Name the modules in modules_to_save: PEFT then trains a copy of each, and saves it with the adapter. "
        f"Leave out {left_out}.",
        fix_code=f"lora_config.modules_to_save = [{listed}]  # before get_peft_model(model, lora_config)",
        first_step=min(written),
        last_step=at,
        evidence=[
            Evidence("trained tensors beside the adapters that no file holds", count, "tensors"),
            Evidence("trained tensors", int(last[at]["held"]), "tensors"),
        ],
        location=configures or process.site(row["site"]),
        seen_at=process.site(row["site"]) if configures is not None else None,
        diff=edit,
        false_alarm="Parts that are saved in another way, or trained for this run alone.",
    )


def _modules(names: str) -> list[str]:
    """The modules whose parameters these are, as modules_to_save takes them."""
    bare = [name.strip().removeprefix("base_model.").removeprefix("model.") for name in names.split(",")]
    return list(dict.fromkeys(name.rpartition(".")[0] for name in bare if "." in name)) or ["classifier"]
