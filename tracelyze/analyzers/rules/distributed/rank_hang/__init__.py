"""rank-hang: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.rank_hang.rule import RULE as RULE
