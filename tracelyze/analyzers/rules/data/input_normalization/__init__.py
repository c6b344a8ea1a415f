"""input-normalization: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.input_normalization.rule import RULE as RULE
