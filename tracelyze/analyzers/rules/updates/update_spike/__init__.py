"""update-spike: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.update_spike.rule import RULE as RULE
