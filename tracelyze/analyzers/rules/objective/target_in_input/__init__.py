"""target-in-input: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.objective.target_in_input.rule import RULE as RULE
