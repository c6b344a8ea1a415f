"""What else changes where a model is to return scores in place of probabilities: whoever reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_INSTEAD: Final = {
    "sigmoid": "take torch.sigmoid of it; a threshold of 0.5 becomes 0",
    "softmax": "take a softmax of it; an argmax stays what it is",
}


def said(process: Process, made_at: Location | None, function: str) -> str:
    """Two sentences for an edit that takes `function` out of the model at this line."""
    lines = sorted(_callers(process, made_at))
    where = f" (line{'s' if len(lines) > 1 else ''} {listed(lines, most=4)} called it outside of training)"
    return (
        f"The model returns scores then. Wherever else its output is shown, compared or drawn from as a probability"
        f"{where if lines else ''}, {_INSTEAD[function]}."
    )


def _callers(process: Process, made_at: Location | None) -> set[int]:
    """The lines of the same file that called the model, or the one of several that holds the module, without training
    it."""
    models = {row["model"] for row in process.models.records()}
    rows = process.tables["modules"].records()
    own = {row["model"] for row in rows if row["made_at"] is not None and process.site(row["made_at"]) == made_at}
    models = own or (models if len(models) == 1 else set())
    called = [process.site(row["site"]) for row in process.evals.records() if row["model"] in models]
    return {at.line for at in called if at is not None and made_at is not None and at.file == made_at.file}
