"""repeated-initialization: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.checkpoints.repeated_initialization.rule import RULE as RULE
