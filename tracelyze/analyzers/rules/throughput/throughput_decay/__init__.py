"""throughput-decay: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.throughput.throughput_decay.rule import RULE as RULE
