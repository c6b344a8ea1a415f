"""A layer that is frozen at the random numbers that it was made with, beside others that were loaded: a new head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import adapters
from tracelyze.analyzers.script.editing.remade import frameworks
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import end_of_name, listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

SHOWN: Final = 3  # names
_WRAPPED: Final = "base_model.model."  # what PEFT puts before the names of the model beneath adapters


def finding(process: Process, event: dict[str, Any], rule: str) -> Finding:
    """From the event that the collector made of it."""
    names = [one.removeprefix(_WRAPPED) for one in str(event["text"]).split()]
    layers = [one.removesuffix(".weight") for one in names]
    optimization, _ = timing.training_from(process, int(event["step"] or 0))
    training = timing.training_of(optimization) if optimization is not None else ""
    with_adapters = frameworks.peft(process)
    place, diff = adapters.saving(process, layers) if with_adapters else (script_lines.only(process, "freeze"), None)
    kept = ", ".join(f'"{one}"' for one in layers)
    one = len(names) == 1
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{end_of_name(names[0], 40)} is frozen at its random values: nothing trains it",
        summary=(
            f"{listed(names, most=SHOWN)}, filled with random numbers, {'is' if one else 'are'} frozen, while other "
            "frozen weights of the model were loaded. What trains reaches the loss through "
            f"{'it' if one else 'them'}, and can only adapt to random numbers."
        ),
        fix=(
            "Name the new layers in modules_to_save: PEFT then trains them with the adapters. For a head of "
            "transformers, task_type does the same (SEQ_CLS, TOKEN_CLS)."
            if with_adapters
            else "Freeze the loaded layers alone, and let the new ones train: make the optimizer after that."
        ),
        fix_code=f"LoraConfig(modules_to_save=[{kept}])  # beside all else that your line hands over"
        if with_adapters
        else f'model.get_submodule("{layers[0]}").requires_grad_(True)  # above the line that makes the optimizer',
        diff=diff,
        first_step=1,
        trainings=[training] if training else [],
        evidence=[Evidence("matrices that are frozen as they were made", len(names), "tensors")],
        location=place or (optimization.made_at if optimization is not None else None),
        seen_at=optimization.backward_location if optimization is not None else None,
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="A layer of random features on purpose.",
        verify=f"Record the run again: {'this weight gets' if one else 'these weights get'} a gradient.",
    )
