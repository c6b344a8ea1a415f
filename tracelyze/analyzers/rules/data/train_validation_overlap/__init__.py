"""train-validation-overlap: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.train_validation_overlap.rule import RULE as RULE
