"""exploding-gradients: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.exploding_gradients.rule import RULE as RULE
