"""clip-per-microbatch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.clipping.clip_per_microbatch.rule import RULE as RULE
