"""vanishing-gradients: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.vanishing_gradients.rule import RULE as RULE
