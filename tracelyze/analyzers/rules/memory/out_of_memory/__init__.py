"""out-of-memory: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.memory.out_of_memory.rule import RULE as RULE
