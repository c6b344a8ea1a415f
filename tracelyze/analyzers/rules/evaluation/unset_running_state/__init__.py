"""unset-running-state: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.unset_running_state.rule import RULE as RULE
