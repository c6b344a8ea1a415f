"""killed: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.ending.killed.rule import RULE as RULE
