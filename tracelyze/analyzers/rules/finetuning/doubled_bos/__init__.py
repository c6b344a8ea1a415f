"""doubled-bos: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.doubled_bos.rule import RULE as RULE
