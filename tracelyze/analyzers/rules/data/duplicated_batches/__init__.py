"""duplicated-batches: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.duplicated_batches.rule import RULE as RULE
