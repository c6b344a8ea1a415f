"""stops-short: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.ending.stops_short.rule import RULE as RULE
