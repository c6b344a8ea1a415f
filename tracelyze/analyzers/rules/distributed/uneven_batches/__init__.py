"""uneven-batches: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.uneven_batches.rule import RULE as RULE
