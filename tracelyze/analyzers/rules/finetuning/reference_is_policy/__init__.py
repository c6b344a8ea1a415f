"""reference-is-policy: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.reference_is_policy.rule import RULE as RULE
