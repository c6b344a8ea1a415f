"""straggler: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.distributed.straggler.rule import RULE as RULE
