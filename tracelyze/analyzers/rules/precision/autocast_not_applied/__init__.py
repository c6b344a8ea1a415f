"""autocast-not-applied: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.precision.autocast_not_applied.rule import RULE as RULE
