"""learning-rate-schedule: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.learning_rate_schedule.rule import RULE as RULE
