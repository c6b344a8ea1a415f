"""eos-never-target: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.eos_never_target.rule import RULE as RULE
