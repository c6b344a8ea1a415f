"""update-ratio: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.update_ratio.rule import RULE as RULE
