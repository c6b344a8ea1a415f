"""scaler-misuse: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.precision.scaler_misuse.rule import RULE as RULE
