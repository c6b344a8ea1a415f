"""unequal-microbatch-weights: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights.rule import RULE as RULE
