"""validation-nonfinite: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.validation_nonfinite.rule import RULE as RULE
