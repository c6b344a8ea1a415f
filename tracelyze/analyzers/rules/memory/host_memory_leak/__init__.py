"""host-memory-leak: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.memory.host_memory_leak.rule import RULE as RULE
