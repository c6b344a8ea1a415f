"""memory-leak: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.memory.memory_leak.rule import RULE as RULE
