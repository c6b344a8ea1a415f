"""mask-after-softmax: attention is masked after its softmax, so that its weights no longer sum to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import softmax_axes
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script.editing import own_expressions
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


FIX_CODE = """scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)  # not behind the softmax
weights = scores.softmax(-1)
# a mask of [batch, keys] beside scores of [batch, heads, queries, keys]: mask[:, None, None, :] == 0"""


def check(process: Process, limits: Limits) -> Outcome:
    """Rows of attention that lost a part of their weight behind the softmax, in the graphs that were walked."""
    graphs = [row for row in process.tables["loss_graphs"].records() if row["softmaxes"]]
    if not graphs:
        return Skipped("no softmax was seen in the graph behind the loss", "not-applicable")
    masked = [row for row in graphs if row["masked_rows"] > limits["rows"]]
    regular = [row for row in masked if row["masked_regularly"]]
    if not regular or len(regular) < limits["share"] * len(graphs):
        return Passed(
            f"in {plural(len(graphs), 'graph')} of the loss, "
            + ("weights were dropped at random behind the softmax" if masked else "nothing masked what a softmax made")
        )
    least, share = (of(row["masked_rows"] for row in regular) for of in (min, max))
    rows = percent(share) if percent(least) == percent(share) else f"{percent(least)} to {percent(share)}"
    layer = " of the layer that loses most" if any(row["softmaxes"] > 1 for row in regular) else ""
    batches = "the batch" if len(regular) == 1 else f"the {plural(len(regular), 'batch', 'batches')}"
    optimization = process.longest if process.optimizations else None
    begin = int(regular[0]["step"] or 0) + 1
    softmax = softmax_axes.line_of_softmax(process)
    own = own_expressions.mask_before_softmax(process, softmax)
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="certain" if len(regular) >= limits["looks"] else "likely",
            title=f"Attention is masked after its softmax: up to {percent(share)} of a batch's rows do not sum to 1",
            summary=(
                f"In {batches} looked at, a mask zeroes attention weights after the softmax has normalised them, in "
                f"{rows} of the rows{layer}, and nothing renormalises them. The rest sums to less than 1, and the more "
                "is masked the less it is, so outputs shrink at some positions. Masked positions still count in the "
                "softmax's denominator, so they are not really hidden."
            ),
            fix="Mask the scores before the softmax"
            + (", and take the mask behind it away." if own else ". The mask must fit their shape."),
            fix_code="" if own else FIX_CODE,
            diff=own,
            first_step=begin,
            evidence=[
                Evidence("rows that lost weight, most in a batch", share, "share", *limits.against("rows")),
                Evidence("graphs looked at", len(graphs), "graphs", role="basis"),
                Evidence("of them like this", len(regular), "graphs", *limits.against("looks"), role="basis"),
            ],
            location=softmax or process.site(regular[0]["site"]),
            seen_at=process.site(regular[0]["site"]),
            charts=pictures.loss(optimization) if optimization is not None else [],
            false_alarm="Attention that is thinned out on purpose, without renormalising.",
        )
    ]


RULE = Rule(
    id="mask-after-softmax",
    family="loss",
    severity="warning",
    title="Attention is masked after its softmax",
    about="A mask belongs before the softmax. After it, weights no longer sum to 1 and masked positions leak.",
    check=check,
    verify="Record the run again: no attention row loses weight after the softmax.",
    absent="The run has no softmax of attention in the graph of its loss.",
    excluded=(
        "Dropout: what it leaves is scaled up, and what it drops is neither an order nor a whole position.",
        "Weights that are divided by their new sum: nothing changes them between the mask and the values.",
        "Rows that are masked as a whole: they have no weight left, instead of a part.",
    ),
    needs=(("loss_graphs.masked_rows",),),
    thresholds=(
        Threshold("rows", 0.05, "share", "derived: a causal mask hides something from all rows but the last"),
        Threshold("share", 0.5, "share", "most of the graphs: batches of equal lengths may have nothing to mask"),
        Threshold("looks", 2, "graphs", "one may be odd"),
    ),
    not_when="Dropout on attention, queries that are padding, weights that are normalised again.",
)
