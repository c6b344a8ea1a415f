"""ema-not-updated: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.ema_not_updated.rule import RULE as RULE
