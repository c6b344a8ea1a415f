"""batch-dimension-mismatch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.batch_dimension_mismatch.rule import RULE as RULE
