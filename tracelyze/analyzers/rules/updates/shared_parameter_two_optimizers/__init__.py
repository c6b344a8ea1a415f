"""shared-parameter-two-optimizers: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.shared_parameter_two_optimizers.rule import RULE as RULE
