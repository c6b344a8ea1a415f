"""Loaded weights that hold nothing of what was loaded when the model is used first, read from their values."""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.checkpoints.repeated_initialization import other_parts
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Row = dict[str, Any]
OF_VECTORS: Final = (
    "model.apply(init_weights)\nwith torch.no_grad():\n    model.embedding.weight.copy_(vectors)  # after every fill"
)
PRETRAINED: Final = "model = AutoModel.from_pretrained(path)"
FIRST: Final = "Initialise first, then load; or initialise the new layers alone."
LEFT_OUT: Final = (
    "Leave this initialisation out: from_pretrained has filled what the file lacks by itself. Or initialise the new "
    "layers alone."
)
_MADE: Final = re.compile(r"\s*self\.(?P<name>\w+)\s*=\s*nn\.\w+\(")
_FILLS: Final = re.compile(
    r"(?<!\binit)\.(?:normal_|uniform_|trunc_normal_|exponential_)\s*\("
    r"|(?:\bParameter\s*\(|\.data\b.*=|\bcopy_\s*\().*\brand(?:n|n_like|)\s*\("
)


def loads(process: Process) -> list[Row]:
    """What was recorded of each load whose weights were looked at again."""
    return [json.loads(row["text"]) for row in process.events_of("loaded-weights")]


def gone(row: Row, limits: Limits) -> bool:
    """Whether most of what was loaded was looked at, and nothing of it was left in most of that."""
    looked_at = row["compared"] >= limits["weights"] and row["compared"] >= limits["part"] * row["tensors"]
    lost = row["gone"] >= limits["overwritten"] * row["compared"]
    return bool(looked_at and lost and abs(row["correlation"]) < limits["correlation"])


def finding(process: Process, row: Row, rule: str, limits: Limits) -> Finding:
    """A warning of the run only where torch.nn.init was seen to fill them, or where its script fills weights with
    random numbers: else they may be another file's."""
    lines = fills(process)
    named = next((line for line in lines if len({one.file_function for one in lines}) == 1), None)
    where = f" {named.function} fills weights with random numbers." if named is not None else ""
    again = int(row.get("refilled") or 0)
    if again >= row["gone"]:
        named, where = process.site(row["refilled_site"]) or named, " torch.nn.init filled them since."
    return Finding(
        rule=rule,
        severity="critical" if lines or again >= row["gone"] else "info",
        confidence="likely" if lines or again >= row["gone"] else "possible",
        title=f"Nothing of what was loaded is left in {row['gone']} of {plural(row['compared'], 'weight')}",
        summary=(
            f"{_setter(row.get('by'))} set {plural(row['tensors'], 'weight')} of {row['name']}. When the model was "
            f"used first, {row['gone']} of the {row['compared']} that were looked at held other numbers, unrelated to "
            f"what was loaded.{where} The training begins without what the file held."
        ),
        fix=LEFT_OUT if row.get("by") == "pretrained" else FIRST,
        fix_code=pretrained_alone(process, named) if row.get("by") == "pretrained" else loaded_last(process, named),
        first_step=int(row["step"]) + 1,
        evidence=[
            Evidence(
                "weights in which nothing of what was loaded is left",
                row["gone"] / row["compared"],
                "share",
                *limits.against("overwritten"),
            ),
            Evidence(
                "their correlation with what was loaded",
                row["correlation"],
                "",
                *limits.against("correlation"),
                role="basis",
            ),
            Evidence("elements compared", row["elements"], "elements", role="basis"),
        ],
        location=named or process.site(row["site"]),
        seen_at=process.site(row["site"]),
        false_alarm="Weights of another model that are copied in by hand after the load.",
    )


def swept(row: Row, loads: list[Row], limits: Limits) -> bool:
    """Whether all of the few weights that were loaded, such as a table of word vectors, were filled along with others.

    What is to begin anew is filled alone. What was used first, as it was loaded, had served its purpose.
    """
    own = [one for one in loads if _refilled_there(one, row)]
    unused = bool(own) and all(one["compared"] == one["gone"] == one["refilled"] for one in own)
    return bool(0 < row["loaded"] == row["overwritten"] and unused and (row["beside"] or 0) >= limits["beside"])


def swept_of_no_optimizer(loads: list[Row], limits: Limits) -> list[Row]:
    """Loads of weights that no optimizer holds, such as word vectors that are not trained, all of which were filled
    anew along with others; as rows of the table initializations."""
    if not all(one["compared"] == one["gone"] == one.get("refilled") for one in loads):
        return []
    return [
        {
            "loaded": one["gone"],
            "overwritten": one["gone"],
            "overwritten_site": one["refilled_site"],
            "beside": one["beside"],
            "step": one["step"] + 1,
        }
        for one in loads
        if one.get("beside", 0) >= limits["beside"] and one["compared"] == one["tensors"]
    ]


def _refilled_there(load: Row, row: Row) -> bool:
    return bool(load.get("refilled")) and load["refilled_site"] == row["overwritten_site"]


def overwritten(process: Process, row: Row, rule: str, limits: Limits, *, few: bool) -> Finding:
    """The finding about loaded weights that were filled anew. `row`: what torch.nn.init was seen to fill before a first
    step. `few`: the model has more weights than these."""
    loaded, beside = int(row["loaded"]), int(row["beside"] or 0)
    title = f"Loaded weights are initialised again: {row['overwritten']} of {loaded} were overwritten"
    which, left = ("it", "it") if loaded == 1 else (f"{row['overwritten']} of them", "them")
    by = {one.get("by") for one in loads(process) if _refilled_there(one, row)}
    vectors, pretrained = by == {"from_pretrained"}, by == {"pretrained"}
    filled = process.site(row["overwritten_site"])
    along = f", along with {plural(beside, 'weight')} that were not loaded" if few else ""
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title="The one weight that was loaded is initialised again" if loaded == 1 else title,
        summary=(
            f"{_setter(*by if len(by) == 1 else ())} set {plural(loaded, 'weight')} of the model. "
            f"Before the first step a function of torch.nn.init filled {which} with random numbers{along}: the "
            f"training begins from scratch, and nothing of what was loaded is left in {left}."
        ),
        fix=LEFT_OUT if pretrained else FIRST,
        fix_code=OF_VECTORS
        if vectors
        else pretrained_alone(process, filled)
        if pretrained
        else loaded_last(process, filled),
        first_step=int(row["step"]),
        evidence=[
            Evidence(
                "loaded weights that were overwritten",
                row["overwritten"] / loaded,
                "share",
                *limits.against("overwritten"),
            ),
            Evidence("weights filled along with them", beside, "tensors", *limits.against("beside"))
            if few
            else Evidence("weights loaded", loaded, "tensors", *limits.against("weights")),
        ],
        location=filling_line(process, filled),
        false_alarm="A comparison with random weights on purpose; weights that are copied in by hand after that.",
    )


def _setter(by: str | None = None) -> str:
    return "from_pretrained" if by in ("from_pretrained", "pretrained") else "load_state_dict"


def fills(process: Process) -> list[Location]:
    """Lines of the script that fill a weight with random numbers, past torch.nn.init and past a model's own making."""
    found = [one for one in process.locations("refill") if _FILLS.search(one.source)]
    return [one for one in found if one.function != "__init__"]


def loaded_last(process: Process, filled: Location | None) -> str:
    """An example that loads after it initialises: the script's own two statements, where they stand in one function;
    what is loaded may be a part of the model that is initialised."""
    places = process.locations("load_state_dict") if filled is not None else []
    here = recorded_text.of_function(process, filled) if filled is not None else {}  # of `__init__` there are several
    elsewhere = {one for one in places if filled is None or one.file_function != filled.file_function}
    elsewhere |= {one for one in places if here and one.line not in here}
    before = [one for one in places if filled and one not in elsewhere and one.line < filled.line]
    both = [own_statement.at(process, one) for one in (filled, before[0])] if len(before) == 1 else []
    lines = [one.dedented(one.text) for one in both if one is not None and isinstance(one.parsed.statement, ast.Expr)]
    if filled is not None and places and len(elsewhere) == len(places):
        parts = other_parts.of(process, filled, places[0]) if len(places) == 1 else None
        return (parts and _but_for(process, filled, *parts)) or _new_layers(process, filled)
    first, last = lines if len(lines) > 1 else ("model.apply(init_weights)", "model.load_state_dict(state)")
    return f"{first}\n{last}  # after every initialisation"


def _but_for(process: Process, filled: Location, loaded: str, others: list[str]) -> str:
    """The script's own `self.apply(...)` on every part but the loaded one; empty of another statement."""
    own = own_statement.at(process, filling_line(process, filled))
    call = own.only_call("apply") if own is not None and own.is_whole else None
    if (
        own is None
        or call is None
        or not isinstance(call.func, ast.Attribute)
        or ast.unparse(call.func.value) != "self"
    ):
        return ""
    parts = ", ".join(f"self.{one}" for one in others) + "," * (len(others) == 1)
    each = own.dedented(own.parsed.with_parts({call.func.value: "part"})).replace("\n", "\n    ")
    return f"for part in ({parts}):  # all but self.{loaded}, which was loaded\n    {each}"


def _new_layers(process: Process, filled: Location) -> str:
    """The script's own `.apply(...)` on the layers that were not loaded, which take the place of the whole model: what
    loads stands elsewhere, and cannot be put behind it."""
    own = own_statement.at(process, filling_line(process, filled))
    call = own.only_call("apply") if own is not None and own.is_whole else None
    if own is None or call is None or not isinstance(call.func, ast.Attribute):
        return "model.head.apply(init_weights)  # head: the layers that are new, alone"
    whole = call.func.value
    name = _new_layer(process, own)
    alone = own.parsed.with_parts({whole: f"{own.parsed.text_of(whole)}.{name or 'head'}"})
    return f"{own.dedented(alone)}  # {'the new layers alone' if name else 'head: the layers that are new, alone'}"


def _new_layer(process: Process, own: own_statement.OwnStatement) -> str:
    """The name of the layer that the line just above makes anew; empty where it makes none."""
    there = recorded_text.of_file(process, own.file).get(own.line - 1, "")
    match = _MADE.match(there)
    return match["name"] if match is not None else ""


def filling_line(process: Process, filled: Location | None) -> Location | None:
    """The line within the function that this line calls, where the only recorded `.apply(...)` of it fills the weights;
    else the line itself."""
    parsed = parsed_line.of(filled)
    calls = [one for one in ast.walk(parsed.tree) if isinstance(one, ast.Call)] if parsed is not None else []
    names = [parsed_line.name_of(one.func) for one in calls]
    if filled is None or len(names) != 1 or names[0] == "apply":
        return filled
    inside = [one for one in process.locations("initialization") if one.file == filled.file]
    inside = [one for one in inside if one.function == names[0] and ".apply(" in one.source]
    return inside[0] if len({one.line for one in inside}) == 1 else filled


def pretrained_alone(process: Process, filled: Location | None) -> str:
    """The script's own statement that loads, in the function that initialises after it: without that."""
    places = [one for one in process.locations("pretrained") if filled and one.file_function == filled.file_function]
    own = own_statement.at(process, places[0]) if len(places) == 1 else None
    known = own is not None and isinstance(own.parsed.statement, ast.Assign)
    loads = own.dedented(own.text) if own is not None and known else PRETRAINED
    return f"{loads}  # nothing initialises the whole model after it"
