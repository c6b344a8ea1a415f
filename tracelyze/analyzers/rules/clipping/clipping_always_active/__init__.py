"""clipping-always-active: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.clipping.clipping_always_active.rule import RULE as RULE
