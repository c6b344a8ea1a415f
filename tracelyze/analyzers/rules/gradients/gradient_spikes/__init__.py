"""gradient-spikes: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.gradient_spikes.rule import RULE as RULE
