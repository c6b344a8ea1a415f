"""The catalogue: every rule, in the order in which checks are listed. One file per rule."""

from tracelyze.analyzers.rule import Rule
from tracelyze.analyzers.rules import crash, loss_nonfinite, memory_leak, missing_zero_grad

RULES: tuple[Rule, ...] = (
    missing_zero_grad.RULE,
    memory_leak.RULE,
    loss_nonfinite.RULE,
    crash.RULE,
)
