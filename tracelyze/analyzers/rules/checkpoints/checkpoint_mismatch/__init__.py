"""checkpoint-mismatch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.checkpoints.checkpoint_mismatch.rule import RULE as RULE
