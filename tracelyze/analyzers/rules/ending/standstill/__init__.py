"""standstill: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.ending.standstill.rule import RULE as RULE
