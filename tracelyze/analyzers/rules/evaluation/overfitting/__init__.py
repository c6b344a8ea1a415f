"""overfitting: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.overfitting.rule import RULE as RULE
