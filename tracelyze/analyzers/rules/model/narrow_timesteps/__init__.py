"""narrow-timesteps: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.model.narrow_timesteps.rule import RULE as RULE
