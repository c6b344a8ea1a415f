"""fp16-overflow: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.precision.fp16_overflow.rule import RULE as RULE
