"""fp16-underflow: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.precision.fp16_underflow.rule import RULE as RULE
