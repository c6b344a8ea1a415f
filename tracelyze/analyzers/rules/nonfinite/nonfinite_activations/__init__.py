"""nonfinite-activations: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.nonfinite.nonfinite_activations.rule import RULE as RULE
