"""new-tokens-untrained: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.new_tokens_untrained.rule import RULE as RULE
