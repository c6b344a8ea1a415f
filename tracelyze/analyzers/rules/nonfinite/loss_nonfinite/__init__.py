"""loss-nonfinite: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.nonfinite.loss_nonfinite.rule import RULE as RULE
