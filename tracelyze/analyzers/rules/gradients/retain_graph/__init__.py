"""retain-graph: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.gradients.retain_graph.rule import RULE as RULE
