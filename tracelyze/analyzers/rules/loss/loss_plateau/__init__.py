"""loss-plateau: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.loss.loss_plateau.rule import RULE as RULE
