"""train-in-eval-mode: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.evaluation.train_in_eval_mode.rule import RULE as RULE
