"""loss-divergence: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.loss.loss_divergence.rule import RULE as RULE
