"""nonfinite-input: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.nonfinite.nonfinite_input.rule import RULE as RULE
