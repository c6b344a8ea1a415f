"""padding-in-loss: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.objective.padding_in_loss.rule import RULE as RULE
