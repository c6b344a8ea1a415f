"""ranks-out-of-sync: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.ranks_out_of_sync.rule import RULE as RULE
