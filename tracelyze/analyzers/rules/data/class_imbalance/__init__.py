"""class-imbalance: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.class_imbalance.rule import RULE as RULE
