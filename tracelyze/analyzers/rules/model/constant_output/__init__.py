"""constant-output: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.model.constant_output.rule import RULE as RULE
