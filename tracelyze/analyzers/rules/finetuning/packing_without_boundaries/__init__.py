"""packing-without-boundaries: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.packing_without_boundaries.rule import RULE as RULE
