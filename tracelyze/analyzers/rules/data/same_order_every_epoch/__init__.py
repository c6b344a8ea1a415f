"""same-order-every-epoch: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.data.same_order_every_epoch.rule import RULE as RULE
