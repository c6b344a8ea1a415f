"""updates-not-applied: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.updates_not_applied.rule import RULE as RULE
