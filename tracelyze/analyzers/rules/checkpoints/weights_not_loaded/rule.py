"""weights-not-loaded: load_state_dict(strict=False) found hardly any of the model's weights, or a step undid it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, missing
from tracelyze.analyzers.rules.checkpoints.weights_not_loaded import merged_states, prefixes, undone_loads
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """Names that were missed on both sides; a load of all of them before the next training makes up for it."""
    if "state_loads" not in process.signals:
        return missing(process, "loads.missing")
    loads = list(process.tables["loads"].records())
    if not loads:
        return Skipped("no model's load_state_dict was called", "not-applicable")
    missed = {row["module"]: row for row in loads if _is_missed(row, limits)}
    made_up = {row["module"] for row in loads if not row["missing"] and _before_training(row, missed)}
    lost = [_first(row, loads, limits) for module, row in missed.items() if module not in made_up]
    merged = [
        merged_states.finding(process, row, RULE.id, limits) for row in merged_states.loads(process, loads, limits)
    ]
    merged += undone_loads.of(process, RULE.id, limits)
    return [_finding(process, row, limits) for row in lost] + merged or Passed(_looked_at(loads))


def _first(row: Row, loads: list[Row], limits: Limits) -> Row:
    """The first load of the module by this line that missed as much: a loop may load again and again."""
    same = (one for one in loads if one["module"] == row["module"] and one["site"] == row["site"])
    return next(one for one in same if _is_missed(one, limits))


def _before_training(row: Row, missed: dict[int, Row]) -> bool:
    """Whether a module was given all its weights before anything was trained without them."""
    return row["module"] in missed and row["step"] <= missed[row["module"]]["step"]


def _looked_at(loads: list[Row]) -> str:
    most = max(loads, key=lambda row: row["missing"] / max(row["expected"], 1))
    if not most["missing"]:
        return f"{plural(len(loads), 'call')} of load_state_dict matched the models' names"
    missed = f"{most['missing']} of {most['expected']} names"
    return f"{plural(len(loads), 'call')} of load_state_dict; the state given to {most['name']} lacks {missed}"


def _is_missed(row: Row, limits: Limits) -> bool:
    if min(row["given"], row["expected"]) < limits["tensors"]:
        return False
    misses = row["missing"] / row["expected"] >= limits["missing"]
    return bool(misses and row["unexpected"] / row["given"] >= limits["unexpected"])


def _finding(process: Process, row: Row, limits: Limits) -> Finding:
    # A head that the file does not have stays missing under any prefix.
    both = min(row["missing"], row["unexpected"])
    places = row["renamed"] or 0
    known, most = places >= limits["unexpected"] * both, places >= limits["renamed"] * both
    given, expected = row["given_prefix"] or "", row["expected_prefix"] or ""
    none = row["missing"] == row["expected"]
    handed, all_of_them = prefixes.handed_over(process, process.site(row["site"])), row["renamed"] == row["given"]
    model, state = handed.model, handed.state
    if most:
        names = "All names" if all_of_them else f"{row['renamed']} of them are names of the model's, but they"
        why = prefixes.said(given, expected, names)
        why += "" if known else f" Renamed this way, {places} of them fit the model."
        code = prefixes.renamed(given, expected, state, bool(expected) or not all_of_them)
    else:
        what = "most of it" if places else "it"
        why = f"No prefix explains {what}: these are another model's weights, or they lie one level deeper."
        code = f"print(list({state})[:5], list({model}.state_dict())[:5])"
        code += f'  # perhaps {state}["model"] or {state}["state_dict"]'
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if known else "likely",
        title=f"{row['name']} loaded {'no' if none else 'hardly any'} weights: {row['missing']} of the model's "
        f"{row['expected']} names were not given",
        summary=(
            f"Of the {row['given']} names given to load_state_dict, {row['unexpected']} are not in the model, and with "
            f"strict=False that raises no error. {why} The model kept the weights it had: freshly initialised, unless "
            "something else set them."
        ),
        fix="Make the names match, and check what load_state_dict reports as missing or unexpected.",
        fix_code=f"{handed.made}{code}\nresult = {model}.load_state_dict({state}, strict=False)\n"
        "print(result.unexpected_keys)  # not in the model: should be none that you meant to load\n"
        "print(result.missing_keys)  # not given, such as a new head",
        first_step=max(1, int(row["step"] or 0)),  # what is evaluated before the next step follows from it, too
        first_second=row["time"],
        evidence=[
            Evidence("weights missing", row["missing"] / row["expected"], "share", *limits.against("missing")),
            Evidence(
                "names not in the model", row["unexpected"] / row["given"], "share", *limits.against("unexpected")
            ),
            *([Evidence("found under another prefix", percent(row["renamed"] / row["missing"]))] if most else []),
        ],
        location=process.site(row["site"]),
        false_alarm="A model that deliberately takes a few tensors from another model's large file.",
    )


RULE = Rule(
    id="weights-not-loaded",
    family="checkpoints",
    severity="critical",
    title="Weights were not loaded",
    about="load_state_dict(strict=False) silently skips names that do not match. A prefix is enough (module. from "
    "DataParallel, _orig_mod. from torch.compile), and nothing is loaded. Merging dictionaries by name does the same. "
    "An optimizer with copies of the weights may write back those from before the load.",
    check=check,
    verify="Record the run again: load_state_dict misses no name, but for parts that the file never had, such as a new "
    "head.",
    excluded=(
        "A new head or adapter: nearly all names are missing.",
        "A later load that supplied the rest: there was none.",
    ),
    thresholds=(
        Threshold("tensors", 2, "tensors", "a single tensor is an experiment"),
        Threshold("missing", 0.9, "share", "a new head or adapter leaves most of the names in place"),
        Threshold(
            "renamed", 0.5, "share", "derived: below it, what is missing is the smaller part, such as a new head"
        ),
        Threshold(
            "layers", 2, "layers", "layers with another input size: a first layer or a position table may differ"
        ),
        Threshold("undone", 0.5, "share", "derived: most of them; a step that trains puts back none"),
        Threshold("unexpected", 0.9, "share", "one shard of a checkpoint misses much, but holds nothing unexpected"),
    ),
    not_when="New heads, adapters, position tables; files loaded in parts; a later load that supplies everything.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",),
)
