"""zero-advantage: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.reinforcement.zero_advantage.rule import RULE as RULE
