"""graph-breaks: torch.compile splits a function into pieces, or compiles it again and again, in the steady loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.throughput.graph_breaks import compiled
from tracelyze.analyzers.script.editing.remade import lines as own_lines
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, plural, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.throughput.graph_breaks.compiled import Row

BY_DEFAULT = " torch.compile does no more by default (recompile_limit): for yet another one it runs uncompiled."
FIX = "Keep Python out of the compiled function there: branch with torch.where, and read or print values outside."


def check(process: Process, limits: Limits) -> Outcome:
    """Breaks with work behind them, else functions that were compiled as often as torch allows."""
    rows = list(process.tables["compilations"].records())
    if not rows:
        return Skipped("nothing was compiled", "not-applicable")
    steps = len(process.longest.steps)
    if steps < limits["steps"]:
        return Passed(f"{plural(steps, 'step')}: what is compiled has hardly been used")
    graphs = [row for row in rows if row["kind"] == "graph" and row["operators"]]
    found = [*_given_up(process, rows), *_broken(process, rows), *_compiled_again(process, graphs, limits)]
    if not found and not graphs:
        return Skipped("torch.compile was asked, and no graph of what it compiled was seen")
    return found or Passed(f"{plural(len(graphs), 'graph')} compiled, none of them in pieces or again and again")


def _given_up(process: Process, rows: list[Row]) -> list[Finding]:
    """Functions that torch.compile leaves to Python as a whole, because the graph would break within a loop."""
    found = compiled.given_up(process, rows)
    if not found:
        return []
    row, line = found[0]
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="certain",
            title=f"torch.compile gives up on {shortened(row['function'], 30)}: all of it runs uncompiled",
            summary=(
                f"{compiled.where(line)}, {compiled.in_words(row['reason'])}, which torch.compile cannot put into a "
                "graph. If it cannot resume after such a line, as in a loop, it runs the whole function in Python."
            ),
            fix=FIX,
            fix_code=own_lines.compiled(process, line),
            first_step=timing.step_at(process.longest, 0),
            evidence=[Evidence(compiled.where(line), compiled.in_words(row["reason"])) for row, line in found[:5]],
            location=line,
            charts=pictures.time_split(process.longest),
        )
    ]


def _broken(process: Process, rows: list[Row]) -> list[Finding]:
    """One finding of all breaks behind which the same function goes on computing."""
    at, behind = compiled.broken(process, rows)
    lines = {site: line for site in at if (line := process.site(site)) is not None}
    if not lines:
        return []
    first = next(iter(lines))
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="certain",
            title=f"torch.compile breaks the graph at {plural(len(lines), 'line')}: what it compiles runs in pieces",
            summary=(
                f"{compiled.where(lines[first])}, {at[first]}, which torch.compile cannot put into a graph. Every call "
                "drops back to Python there and starts a new graph: nothing is fused across the break."
            ),
            fix=FIX,
            fix_code=own_lines.compiled(process, lines[first]),
            first_step=timing.step_at(process.longest, 0),
            evidence=[
                *(Evidence(compiled.where(line), at[site]) for site, line in list(lines.items())[:5]),
                Evidence("graphs that begin behind a break", behind),
            ],
            location=lines[first],
            charts=pictures.time_split(process.longest),
            false_alarm="A break in code that runs rarely, or whose work on either side is long anyway.",
        )
    ]


def _compiled_again(process: Process, graphs: list[Row], limits: Limits) -> list[Finding]:
    """The function that was compiled most often, if that reached the limit."""
    often = compiled.most_often(graphs)
    count = 1 + max((int(row["again"]) for row in often), default=0)
    if count < limits["again"]:
        return []
    last = often[-1]
    name, seconds = shortened(last["function"], 30), sum(row["seconds"] or 0.0 for row in often if row["again"])
    usual = timing.cost_of(process.longest, timing.numbers(process.longest) > 0)
    share = min(1.0, seconds * usual.share / usual.seconds) if usual and usual.seconds and usual.share else None
    because = f" The last time, this no longer held: {last['reason']}." if last["reason"] else ""
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title=f"torch.compile compiled {name} {count} times",
            summary=(
                f"{name} was compiled {count} times; all but the first took {duration(seconds)}.{because}"
                + (BY_DEFAULT if count == limits["again"] else "")
            ),
            fix="Keep what changes from call to call out of the compiled function: pass tensors, keep lists outside.",
            fix_code="torch._dynamo.config.error_on_recompile = True  # for a test: raises where it compiles anew",
            first_step=timing.step_at(process.longest, 0),
            evidence=[
                Evidence("times it was compiled", count, "", *limits.against("again")),
                *(Evidence("no longer held", row["reason"]) for row in often[-5:] if row["reason"]),
            ],
            cost=Cost(seconds, share),
            location=process.site(last["site"]),
            charts=pictures.time_split(process.longest),
            false_alarm="A function that is meant for a few shapes, each of which is compiled once.",
        )
    ]


RULE = Rule(
    id="graph-breaks",
    family="throughput",
    severity="warning",
    title="torch.compile breaks graphs, or recompiles again and again",
    about="A line that cannot be compiled splits the graph in two, and a function whose inputs change is recompiled.",
    check=check,
    verify="Record the run again: the function is one graph, compiled once or twice.",
    excluded=("A break at the end: more of the same function was compiled behind it.",),
    absent="The run compiles nothing.",
    needs=(("compilations.kind",),),
    thresholds=(
        Threshold("steps", 50, "steps", "below it, compiling takes longer than the steps it is for"),
        Threshold("again", 8, "times", "torch._dynamo.config.recompile_limit: then torch.compile gives up"),
    ),
    not_when="First compilations, one recompilation for other sizes, graph breaks at backward, at the optimizer, or "
    "on request.",
    references=("https://docs.pytorch.org/docs/stable/torch.compiler_faq.html#graph-breaks",),
)
