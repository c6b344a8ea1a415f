"""graph-breaks: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.throughput.graph_breaks.rule import RULE as RULE
