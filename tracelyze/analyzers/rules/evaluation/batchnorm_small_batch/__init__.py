"""batchnorm-small-batch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.batchnorm_small_batch.rule import RULE as RULE
