"""new-tokens-untrained: rows that were added to an embedding are used by the inputs and never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.finetuning.new_tokens_untrained import masked_rows
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import adapters
from tracelyze.analyzers.script.editing.remade import frameworks
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import end_of_name, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Added rows at the last look at each embedding, against the first measurement."""
    by_parameter: dict[str, list[Row]] = {}
    for row in process.tables["new_rows"].records():
        by_parameter.setdefault(row["parameter"], []).append(row)
    if not by_parameter:
        return Skipped("no embedding was made larger before it was trained", "not-applicable")
    last = [rows[-1] | {"begun": rows[0]["step"]} for rows in by_parameter.values()]
    late = [row for row in last if row["step"] - row["begun"] >= limits["steps"]]
    if not late:
        return Skipped(f"the new rows were last measured before step {limits['steps']:.0f}")
    rows = [row for row in late if row["looked_up"]]
    if not rows:
        if any(row["looked_up"] is None for row in late):
            return Skipped("it was not seen which embedding the forward looks up: the model is compiled, say")
        return Passed("the forward looks up copies of the rows that were added, or adds what an adapter has learned")
    found = [
        _finding(process, row, limits)
        for row in rows
        if row["used"] and row["unchanged"] >= limits["share"] * row["used"]
    ]
    if found:
        return found
    used = sum(row["used"] for row in rows)
    return Passed(f"{used:.0f} new rows are used by the inputs, and change" if used else "no new row is used by inputs")


def _finding(process: Process, row: Row, limits: Limits) -> Finding:
    added, used = row["rows"] - row["before"], int(row["used"])
    optimization, begun = timing.training_from(process, int(row["begun"]))
    lasts = int(row["step"] - row["begun"])
    training = timing.training_of(optimization) if optimization is not None else ""
    held = _held(process, row)
    whole = row["unchanged"] == used
    kept = ("it is" if used == 1 else "all of these are") if whole else f"{row['unchanged']:.0f} of these are"
    made, stepped = (optimization.made_at, optimization.step_location) if optimization is not None else (None, None)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"New tokens are never trained: {plural(used, 'row')} of {end_of_name(row['parameter'], 30)} stay as is",
        summary=(
            f"{row['parameter']} was made larger by {plural(added, 'row')} (from {row['before']:,} to {row['rows']:,}) "
            f"before training. Inputs use {used} of them, not counting padding, and {kept} bit-for-bit unchanged "
            f"{plural(lasts, 'step')} later. {held.why}"
        ),
        fix=held.fix,
        fix_code=held.code,
        diff=held.diff,
        first_step=begun + 1,
        first_second=optimization.ended(begun + 1) if optimization is not None else None,
        last_step=begun + lasts,
        trainings=[training] if training else [],
        evidence=[
            Evidence("new rows that inputs use", used, "rows"),
            Evidence("of them unchanged", int(row["unchanged"]), "rows", role="basis"),
            Evidence("steps from first to last measurement", lasts, "steps", *limits.against("steps")),
            Evidence("the weight requires a gradient", "yes" if row["trainable"] else "no"),
        ],
        location=held.line or made or stepped,
        seen_at=stepped,
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="New rows filled with embeddings that should stay as they are.",
    )


class _Held(NamedTuple):
    """What keeps the rows as they are, what to do, and the line, where it is known."""

    why: str
    fix: str
    code: str
    line: Location | None
    diff: Diff | None = None


def _held(process: Process, row: Row) -> _Held:
    if not row["trainable"]:
        wrapped, adapted = adapters.training_rows(process, row["parameter"])
        return _Held(
            "The weight is frozen, so the new tokens keep the values that they were added with.",
            "Train the embedding (and the head, if tokens are to be produced)"
            f"{' along with the adapters' * frameworks.peft(process)}, or at least the new rows.",
            adapted,
            script_lines.only(process, "freeze") or wrapped,
        )
    masked = masked_rows.remedy(process, row["before"], row["rows"])
    if masked is not None:
        return _Held(masked.why, masked.fix, masked.code, masked.place, masked.diff)
    return _Held(
        "The weight is trainable, but nothing updates these rows: their gradient is masked, or the optimizer holds "
        "another tensor.",
        "Make the optimizer after the embedding was resized, and look for what holds these rows: a hook that "
        "multiplies the gradient by a mask, or old values that are written back after a step.",
        f"weight = dict(model.named_parameters())['{row['parameter']}']\n"
        f"loss.backward()\nprint(weight.grad[{row['before']}:].norm())  # above zero, where a batch holds new tokens\n"
        "print(any(weight is one for group in optimizer.param_groups for one in group['params']))  # True",
        script_lines.only(process, "hook"),
    )


RULE = Rule(
    id="new-tokens-untrained",
    family="fine-tuning",
    severity="warning",
    title="New tokens are never trained",
    about="Rows added to an embedding hold random values. If the embedding is frozen while adapters train, they stay "
    "random.",
    check=check,
    verify="Record the run again: the new rows change.",
    absent="The run makes no embedding larger.",
    excluded=(
        "An embedding that is frozen on purpose: only rows that were added are looked at.",
        "An embedding beside a copy that is trained, or below an adapter: the forward looks these very rows up.",
        "Rows that never occur, and padding: only ids that are met in inputs, and do not follow themselves, count.",
    ),
    needs=(("new_rows.unchanged", "new_rows.looked_up"),),
    thresholds=(
        Threshold("steps", 20, "steps", "a warm-up may begin with rates that change nothing"),
        Threshold("share", 0.9, "share", "of the rows that are used; one that came late may not have been trained yet"),
    ),
    not_when="Rows that no input uses, padding tokens, embeddings that were not resized, or beside which a copy or an "
    "adapter is trained.",
    references=("https://huggingface.co/docs/peft/developer_guides/troubleshooting#extending-the-vocabulary",),
)
