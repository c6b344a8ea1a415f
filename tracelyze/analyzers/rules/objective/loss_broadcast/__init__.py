"""loss-broadcast: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.objective.loss_broadcast.rule import RULE as RULE
