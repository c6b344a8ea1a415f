"""unscaled-accumulation: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.accumulation.unscaled_accumulation.rule import RULE as RULE
