"""prompt-in-loss: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.prompt_in_loss.rule import RULE as RULE
