"""router-collapse: the gate of a mixture of experts sends nearly all tokens to a few of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.model.router_collapse import (
    balance_bias,
    balance_counts,
    balance_entropy,
    balance_term,
    balance_weight,
    idle_experts,
)
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import end_of_name, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
_FIX = (
    "Add a load-balancing loss. If there is one, check its sign: what grows where few experts get all is added, an "
    "entropy of the mean shares is subtracted. Check that it uses the gate's probabilities: token counts alone "
    "(argmax, one_hot) have no gradient, whatever their weight; then raise its weight. Alternatives: noise on the "
    "gate during training, a balancing bias without a loss, or a capacity limit per expert."
)
_EXAMPLE = (
    "share = one_hot(choice, experts).float().mean(0)  # counts: no gradient goes through these\n"
    "loss = loss + 0.01 * experts * (share * probabilities.mean(0)).sum()"
)


def check(process: Process, limits: Limits) -> Outcome:
    """Tokens of each expert of a gate, in the later half of the looks at it."""
    gates: dict[str, list[Row]] = {}
    small: set[str] = set()
    for row in process.tables["activations"].records():
        if row.get("idle") is None:
            continue
        if (row["elements"] or 0) < limits["tokens"] * row["experts"] * row["experts"]:
            small.add(row["module"])
        else:
            gates.setdefault(row["module"], []).append(row)
    late = {
        name: [row for row in rows[len(rows) // 2 :] if row["step"] >= limits["steps"]] for name, rows in gates.items()
    }
    judged = {name: rows for name, rows in late.items() if len(rows) >= limits["looks"]}
    if not judged:
        return Skipped(
            "gates of experts were looked at too seldom after the first steps"
            if gates
            else f"{plural(len(small), 'gate')} of experts got fewer than {limits['tokens']:.0f} tokens for each expert"
            if small
            else "no gate of experts was seen",
            "needs-more" if gates else "not-applicable",
        )
    bad = {name: rows for name, rows in judged.items() if idle_experts.favoured(rows, limits)}
    bad |= {
        name: gone
        for name in judged
        if name not in bad and (gone := idle_experts.at_last(process, gates[name], limits))
    }
    if not bad:
        return Passed(f"{plural(len(judged), 'gate')} of experts: tokens are shared out among most of them")
    return [_finding(process, bad, gates, len(judged), limits)]


def _finding(
    process: Process, bad: dict[str, list[Row]], looks: dict[str, list[Row]], gates: int, limits: Limits
) -> Finding:
    name, rows = max(bad.items(), key=lambda item: float(np.median([row["idle"] / row["experts"] for row in item[1]])))
    experts = int(rows[-1]["experts"])
    idle = round(float(np.median([row["idle"] for row in rows])))
    busiest = float(np.median([row["busiest_share"] for row in rows]))
    optimization = process.longest if process.optimizations else None
    begin = min(idle_experts.since(looks[one], limits) for one in bad)
    seen = optimization.backward_location if optimization is not None else None
    turned = balance_term.taken_off(process) or balance_entropy.added(process) or balance_bias.raised(process)
    mistake = turned or balance_weight.zero(process) or balance_counts.alone(process)
    alike = "is" if len(bad) == 1 else "are"
    others = f" ({len(bad)} of {gates} gates {alike} like this)" if gates > 1 else ""
    gone = rows[0]["step"] == idle_experts.since(looks[name], limits) > 1
    when = f"Since step {rows[0]['step']:,}" if gone else "In the later half of the measurements"
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain" if busiest >= limits["certain"] else "likely",
        title=f"Router collapse: {idle} of {experts} experts of {end_of_name(name, 34)} get almost no tokens",
        summary=(
            f"{when}, {idle} of the {experts} experts behind {name} were chosen for "
            f"less than a tenth of an even share of the tokens, and one for {percent(busiest)} of them"
            f"{others}. Experts that get no tokens learn nothing, and their parameters are wasted."
        ),
        fix=_FIX if mistake is None else mistake.fix,
        fix_code=(mistake and mistake.code) or _EXAMPLE,
        first_step=begin,
        evidence=[
            Evidence("experts that are hardly used", idle / experts, "share", *limits.against("idle")),
            Evidence("tokens for which one expert is chosen", busiest, "share"),
            Evidence("measurements", len(rows), "measurements", *limits.against("looks"), role="basis"),
        ],
        location=(mistake.place if mistake else balance_term.added_at(process, seen))
        or process.module_location(name)
        or seen,
        seen_at=seen,
        charts=pictures.loss(optimization, [Mark(float(begin), "few experts are used since")])
        if optimization is not None
        else [],
        false_alarm="Data of only a few kinds, each with its own expert.",
    )


RULE = Rule(
    id="router-collapse",
    family="loss",
    severity="warning",
    title="The router uses few experts",
    about="A gate favours experts that are already better: a few get all tokens unless something balances the load.",
    check=check,
    verify="Record the run again: tokens are shared out among most experts.",
    absent="The run has no mixture of experts, or its gates are not known as such (gate, router, switch).",
    excluded=(
        "The first steps: only the later half of the measurements counts.",
        "Batches of one domain each: the favourite expert is the same in all measurements.",
    ),
    needs=(("activations.experts",),),
    thresholds=(
        Threshold("idle", 0.5, "share", "half of the experts: each takes part in an even routing by far more"),
        Threshold("certain", 0.9, "share", "nearly all tokens have one first choice"),
        Threshold(
            "tokens",
            4,
            "tokens",
            "derived: per expert in a forward; by chance one in exp(4) = 55 then gets none of them",
        ),
        Threshold("steps", 20, "steps", "a gate begins with random favourites"),
        Threshold("looks", 2, "measurements", "one batch may be odd"),
    ),
    not_when="First steps, few tokens, shared experts, batches of one domain each.",
    references=("https://arxiv.org/abs/2101.03961",),
)
