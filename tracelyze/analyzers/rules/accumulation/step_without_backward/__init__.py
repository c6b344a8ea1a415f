"""step-without-backward: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.accumulation.step_without_backward.rule import RULE as RULE
