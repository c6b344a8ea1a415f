"""What to do where nothing trained, or nothing of it was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.reports.markup import Child, element, with_code
from tracelyze.reports.wording import words

if TYPE_CHECKING:
    from tracelyze.diagnosis import RunFacts


def section(run: RunFacts) -> Child:
    """The usual reasons, the most likely one first; None where training was seen, or another program recorded."""
    if run.steps or run.imported:
        return None
    command = words.command(run.command) if run.command else "python train.py"
    reasons = [
        (
            "The script trains only with other arguments",
            "Give it the arguments that start a training.",
            f"tracelyze collect -- {command}",
        ),
        (
            "Another program trains",
            "A job handed to a cluster or a container runs elsewhere. Put tracelyze in front of the command there.",
            f"srun tracelyze collect -- {command}",
        ),
        (
            "Nothing calls `optimizer.step()`, or the training does not use `torch.optim`",
            "Look for a condition around the step. A training with steps of its own can report each from the script.",
            "tracelyze.log(step=step, loss=loss)",
        ),
    ]
    items = [
        element(
            "li",
            element(
                "div",
                element("p", element("b", with_code(title))),
                element("p", text, class_="quiet"),
                element("code", example, class_="command"),
            ),
        )
        for title, text, example in reasons
    ]
    return element(
        "section",
        element("h2", "What to do"),
        element("p", "The three usual reasons, most likely first.", class_="intro"),
        element("ol", items, class_="card steps"),
        id="todo",
    )
