"""weights-not-loaded: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.checkpoints.weights_not_loaded.rule import RULE as RULE
