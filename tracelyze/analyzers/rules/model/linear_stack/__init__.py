"""linear-stack: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.model.linear_stack.rule import RULE as RULE
