"""loss-spikes: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.loss.loss_spikes.rule import RULE as RULE
