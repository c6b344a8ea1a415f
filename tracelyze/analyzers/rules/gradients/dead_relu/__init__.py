"""dead-relu: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.dead_relu.rule import RULE as RULE
