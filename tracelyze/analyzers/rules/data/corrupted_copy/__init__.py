"""corrupted-copy: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.corrupted_copy.rule import RULE as RULE
