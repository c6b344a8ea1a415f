"""Which calls that evaluate what no loader has made are looked at, and which batches of the training beside them."""

from __future__ import annotations

from tracelyze.collectors.program.call import Call

EARLY_PER_BATCH = 256  # the most samples of one batch
LEAST = 32  # samples that a batch counts for, of those that are looked at early: looks of few samples cost as much
EVALUATED = (
    3  # steps after which a model is evaluated on so many samples, without a loader, at which these are looked at
)
BESIDE = 64  # batches that are trained on behind the first one that are all looked at
EVALUATED_CALLS = 8  # of each such step
APART = 5  # steps between two evaluations: more often than that they belong to the steps themselves
EVALUATED_SAMPLES = 2048  # in all of them: 12 ms, once


class EvaluatedCalls:
    """Which calls that evaluate what no loader has made are looked at: the first ones of each number of samples.

    A model that is called like this with nearly every step takes part in it: a generator, a teacher.
    """

    def __init__(self) -> None:
        self._left = EVALUATED_SAMPLES
        self._beside = 0  # batches of the training that may still be looked at, each of them
        self._steps: dict[tuple[int, int | None], list[int]] = {}  # by model and samples: each call's step
        self._latest: dict[tuple[int, int | None], int] = {}
        self._begun = False  # An evaluation was looked at.

    def wanted(self, call: Call) -> bool:
        key, at = (call.model.number, call.batch_size), call.step
        if self._left <= 0 or (key not in self._latest and len(self._latest) > EVALUATED_SAMPLES // LEAST):
            return False
        before = max(self._latest.get(key, 0), call.model.skipped.get(call.batch_size or 1, 0))
        self._latest[key] = at
        steps = self._steps.setdefault(key, [])
        if (at not in steps and at - before < APART) or steps.count(at) >= EVALUATED_CALLS:
            return False
        if len({*steps, at}) > EVALUATED:
            return False
        steps.append(at)
        self._left -= max(LEAST, min(EARLY_PER_BATCH, call.batch_size or 1))
        if not self._begun:
            self._begun, self._beside = True, BESIDE
        return True

    def all_trained(self) -> bool:
        """Whether to look at a batch that is trained on: each of them behind the first evaluation."""
        self._beside -= self._beside > 0
        return self._beside > 0
