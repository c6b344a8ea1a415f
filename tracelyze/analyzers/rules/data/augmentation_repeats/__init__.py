"""augmentation-repeats: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.augmentation_repeats.rule import RULE as RULE
