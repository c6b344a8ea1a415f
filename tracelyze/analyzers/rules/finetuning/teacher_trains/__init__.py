"""teacher-trains: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.finetuning.teacher_trains.rule import RULE as RULE
