"""nonfinite-gradients: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.nonfinite.nonfinite_gradients.rule import RULE as RULE
