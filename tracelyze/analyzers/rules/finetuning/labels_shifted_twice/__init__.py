"""labels-shifted-twice: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.labels_shifted_twice.rule import RULE as RULE
