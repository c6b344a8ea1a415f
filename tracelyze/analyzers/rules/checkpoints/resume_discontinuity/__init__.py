"""resume-discontinuity: its rule, and what nothing else uses."""

from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.rule import RULE as RULE
