"""fp16-without-scaler: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.precision.fp16_without_scaler.rule import RULE as RULE
