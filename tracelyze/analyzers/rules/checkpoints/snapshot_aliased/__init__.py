"""snapshot-aliased: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.checkpoints.snapshot_aliased.rule import RULE as RULE
