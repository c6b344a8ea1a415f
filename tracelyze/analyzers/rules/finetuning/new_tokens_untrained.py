"""new-tokens-untrained: rows that were added to an embedding are used by the inputs and never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import edits, pictures, script_lines
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.remade import frameworks
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import end_of_name, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

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
    optimization = process.longest if process.optimizations else None
    frozen = not row["trainable"]
    adapters, adapted = _adapters(process, row) if frozen else (None, "")
    made, stepped = (optimization.made_at, optimization.step_location) if optimization is not None else (None, None)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"New tokens are never trained: {plural(used, 'row')} of {end_of_name(row['parameter'], 30)} stay as is",
        summary=(
            f"{row['parameter']} was made larger by {plural(added, 'row')} (from {row['before']:,} to {row['rows']:,}) "
            f"before training. Inputs use {used} of them, not counting padding, and {row['unchanged']:.0f} of these "
            f"are bit-for-bit unchanged {plural(row['step'] - row['begun'], 'step')} later. "
            + (
                "The weight is frozen, so the new tokens keep their meaningless initial values."
                if frozen
                else "The weight is trainable, but nothing updates these rows: their gradient is masked, or the "
                "optimizer holds another tensor."
            )
        ),
        fix="Train the embedding (and the head, if tokens are to be produced) along with the adapters, or at least "
        "the new rows."
        if frozen
        else "Make the optimizer after the embedding was resized, and look for what holds these rows: a hook that "
        "multiplies the gradient by a mask, or old values that are written back after a step.",
        fix_code=adapted
        if frozen
        else f"weight = dict(model.named_parameters())['{row['parameter']}']\n"
        f"loss.backward()\nprint(weight.grad[{row['before']}:].norm())  # above zero, where a batch holds new tokens\n"
        "print(any(weight is one for group in optimizer.param_groups for one in group['params']))  # True",
        first_step=int(row["begun"]) + 1,
        last_step=int(row["step"]),
        evidence=[
            Evidence("new rows that inputs use", used, "rows"),
            Evidence("of them unchanged", int(row["unchanged"]), "rows", role="basis"),
            Evidence(
                "steps from first to last measurement",
                int(row["step"] - row["begun"]),
                "steps",
                limits["steps"],
                limits.source("steps"),
            ),
            Evidence("the weight requires a gradient", "no" if frozen else "yes"),
        ],
        location=script_lines.only(process, "freeze" if frozen else "hook") or adapters or made or stepped,
        seen_at=stepped,
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="New rows filled with embeddings that should stay as they are.",
    )


def _adapters(process: Process, row: Row) -> tuple[Location | None, str]:
    """The line that says what adapters train beside the frozen rest, and that line with the embedding and the head."""
    path = row["parameter"].rpartition(".")[0]
    if path and not frameworks.peft(process):
        return None, f'model.get_submodule("{path}").requires_grad_(True)  # above the line that makes the optimizer'
    embedding = path.rpartition(".")[2] or "embed_tokens"
    kept = f'["{embedding}", "lm_head"]'
    rows = "\n# or trainable_token_indices=new_ids, for the new rows alone"
    example = f"LoraConfig(r=8, modules_to_save={kept}){rows}"
    made = [one for one in process.tables["modules"].records() if str(one["kind"]).startswith("Peft")]
    wrapped = process.site(made[0]["made_at"]) if made else None
    lines = edits.lines_of_function(process, wrapped) if wrapped is not None else {}
    at = [number for number, line in lines.items() if "LoraConfig(" in line]
    if wrapped is None or len(at) != 1:
        return wrapped, example
    place = Location(wrapped.file, at[0], wrapped.function, lines[at[0]].strip())
    own = own_statement.at(process, place)
    call = own.only_call("LoraConfig") if own is not None else None
    if own is None or call is None or any(one.arg == "modules_to_save" for one in call.keywords):
        return place, example
    text = own.with_argument(("LoraConfig",), "modules_to_save", kept)
    return place, own.dedented(text) + rows if text else example


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
