"""completions-truncated: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.reinforcement.completions_truncated.rule import RULE as RULE
