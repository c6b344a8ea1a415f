"""augmented-validation: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.augmented_validation.rule import RULE as RULE
