"""no-shuffle: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.no_shuffle.rule import RULE as RULE
