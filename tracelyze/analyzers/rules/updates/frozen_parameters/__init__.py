"""frozen-parameters: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.updates.frozen_parameters.rule import RULE as RULE
