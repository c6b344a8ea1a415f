"""missing-zero-grad: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.accumulation.missing_zero_grad.rule import RULE as RULE
