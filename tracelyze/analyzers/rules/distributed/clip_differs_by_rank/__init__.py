"""clip-differs-by-rank: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.clip_differs_by_rank.rule import RULE as RULE
