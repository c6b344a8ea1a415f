"""labels-all-ignored: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.labels_all_ignored.rule import RULE as RULE
