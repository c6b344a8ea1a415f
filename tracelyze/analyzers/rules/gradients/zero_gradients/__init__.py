"""zero-gradients: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.zero_gradients.rule import RULE as RULE
