"""crash: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.ending.crash.rule import RULE as RULE
