"""linear-stack: the output of one linear layer goes unchanged into the next; together they are no more than one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.model.linear_stack import activated, idle_arguments
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

ADAPTERS = ("lora", "adapter")


def check(process: Process, limits: Limits) -> Outcome:
    """Layers that were fed by another one, in every measurement, and are no bottleneck."""
    rows = [row for row in process.tables["activations"].records() if row["inputs"] is not None]
    forwards = len({row["step"] for row in rows})
    if forwards < limits["looks"]:
        return Skipped(f"linear layers or convolutions were looked at in {plural(forwards, 'forward')}: too few")
    layers = {str(row["module"]): row for row in rows}
    links = _links(rows)
    wide = {name: other for name, other in links.items() if _wide(layers, name, other)}
    redundant = {name: other for name, other in wide.items() if _is_plain(wide, name, other)}
    if not redundant:
        return Passed(
            f"{plural(len(layers), 'layer')} looked at, none of which always takes the plain output of another"
        )
    called = {str(row["module"]): row.get("called_at") for row in rows}  # of the last forward that was looked at
    return [_finding(process, redundant, layers, called, forwards, limits)]


def _links(rows: list[dict[str, Any]]) -> dict[str, str]:
    """What each layer is fed by, if that is the same at all measurements and feeds no other layer as well."""
    found: dict[str, set[str | None]] = {}
    for row in rows:
        found.setdefault(str(row["module"]), set()).add(row["fed_by"])
    links = {name: next(iter(by)) for name, by in found.items() if len(by) == 1}
    used = [other for by in found.values() for other in by]
    return {name: other for name, other in links.items() if other is not None and used.count(other) == 1}


def _wide(layers: dict[str, dict[str, Any]], name: str, other: str) -> bool:
    """Whether what is between two layers is no narrower than both their ends: a bottleneck factorises, on purpose."""
    if other not in layers or any(mark in one.lower() for mark in ADAPTERS for one in (name, other)):
        return False
    between = layers[other]["outputs"]
    return bool(between >= min(layers[other]["inputs"], layers[name]["outputs"]))


def _is_plain(links: dict[str, str], name: str, other: str) -> bool:
    """Whether two layers stand side by side in one module, or in a longer row of layers. A single link from one module
    into another is more often a stem before a residual block, or an embedding that a second loss uses as well."""
    beside = name.rpartition(".")[0] == other.rpartition(".")[0]
    return beside or other in links or name in links.values()


def _title(links: dict[str, str]) -> str:
    """How many layers stand in a row, or in how many places two or more do."""
    rows = sum(other not in links for other in links.values())  # each begins with a layer that no other one feeds
    if rows == 1:
        return f"{len(links) + 1} layers in a row without an activation between them act as one linear layer"
    return f"In {rows} places linear layers follow each other with no activation between them"


def _others(links: dict[str, str]) -> str:
    """Words for modules beside the first that hold such layers."""
    holders = {other.rpartition(".")[0] for other in links.values()}
    return ", and those like it" if len(holders) > 1 else ""


def _finding(
    process: Process,
    redundant: dict[str, str],
    layers: dict[str, dict[str, Any]],
    called: dict[str, Any],
    forwards: int,
    limits: Limits,
) -> Finding:
    optimization = process.longest
    pairs = listed((f"`{other}` into `{name}`" for name, other in redundant.items()), most=4)
    serious = len(redundant) >= limits["links"]
    later = next(iter(redundant))
    idle = activated.all_idle(process, redundant)
    called_at = process.site(called.get(later))  # not in the script where a Sequential calls it
    between = idle_arguments.found(process, idle[0]) if idle else None
    between = between if idle or called_at else activated.in_row(process, redundant)
    return Finding(
        rule=RULE.id,
        severity="warning" if serious else "info",
        confidence="likely",  # whether something else uses the output between them is not seen
        title=_title(redundant),
        summary=(
            f"In all {forwards} forwards looked at, the output of a layer went unchanged into the next: {pairs}. "
            "Stacked linear maps are one linear map: the extra layers cost time and add nothing, and the model cannot "
            "learn anything nonlinear there."
            f"{activated.idle_told(process, idle) if idle else ''}{between.said if between else ''}"
        ),
        fix=(between and between.fix)
        or (activated.idle_remedy(process, idle, _others(redundant)) if idle else "")
        or "Put an activation between the layers, or replace them with one layer.",
        fix_code=(between.code if between else activated.in_place_of(process, idle[0] if idle else ""))
        or activated.in_forward(process, redundant),
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("layers that feed the next one directly", pairs),
            Evidence("such pairs", len(redundant), "pairs", *limits.against("links"), role="basis"),
            Evidence("layers looked at", len(layers), "layers", role="basis"),
            Evidence("forwards looked at", forwards, "forwards", *limits.against("looks"), role="basis"),
        ],
        location=(between and between.place)
        or (process.module_location(idle[0]) if idle else None)
        or called_at
        or process.module_location(later)
        or process.location("forward"),
        seen_at=process.location("training-call") or process.location("forward"),
        charts=pictures.loss(optimization),
        false_alarm="An output that something else uses as well, such as a residual branch or a gate; a factorised "
        "layer; a linear model that is deep on purpose.",
    )


RULE = Rule(
    id="linear-stack",
    family="model",
    severity="warning",
    title="Linear layers with nothing between them",
    about="Without an activation between them, several linear layers compute no more than one could.",
    check=check,
    verify="Record the run again: no layer takes the plain output of another as its input.",
    excluded=(
        "A bottleneck or an adapter: what lies between is no narrower than both ends, and the layers have a bias.",
        "A layer that is left out now and then: it is so in every forward that was looked at.",
    ),
    needs=(("activations.outputs",),),
    thresholds=(
        Threshold("looks", 2, "forwards", "a layer that is left out at random (stochastic depth) is there in others"),
        Threshold(
            "links", 2, "pairs", "one pair may be an embedding before a classifier; two are a forgotten activation"
        ),
    ),
    not_when="Bottlenecks (low rank, adapters, autoencoders), layers without a bias, attention, one feeding several, "
    "depthwise and one-by-one convolutions, a stem before a block.",
)
