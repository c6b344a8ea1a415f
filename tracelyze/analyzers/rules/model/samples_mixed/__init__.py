"""samples-mixed: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.model.samples_mixed.rule import RULE as RULE
