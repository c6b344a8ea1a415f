"""router-collapse: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.model.router_collapse.rule import RULE as RULE
