"""reported-loss-mismatch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.ending.reported_loss_mismatch.rule import RULE as RULE
