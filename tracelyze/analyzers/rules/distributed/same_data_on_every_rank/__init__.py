"""same-data-on-every-rank: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.same_data_on_every_rank.rule import RULE as RULE
