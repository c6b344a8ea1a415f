"""learning-rate-too-high: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.learning_rate_too_high.rule import RULE as RULE
