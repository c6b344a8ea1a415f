"""sampler-mismatch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.reinforcement.sampler_mismatch.rule import RULE as RULE
