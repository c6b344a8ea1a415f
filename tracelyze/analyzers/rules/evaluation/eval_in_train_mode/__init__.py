"""eval-in-train-mode: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.eval_in_train_mode.rule import RULE as RULE
