"""debug-mode-left-on: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.throughput.debug_mode_left_on.rule import RULE as RULE
