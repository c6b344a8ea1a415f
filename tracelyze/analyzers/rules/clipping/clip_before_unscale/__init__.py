"""clip-before-unscale: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.clipping.clip_before_unscale.rule import RULE as RULE
