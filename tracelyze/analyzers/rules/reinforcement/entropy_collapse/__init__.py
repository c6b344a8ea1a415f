"""entropy-collapse: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.reinforcement.entropy_collapse.rule import RULE as RULE
