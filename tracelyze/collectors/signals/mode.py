"""Train or eval mode of the model and of the modules that behave differently in it, at every outermost call."""

from __future__ import annotations

from typing import Any

from tracelyze.collectors import sensitivity
from tracelyze.collectors.calls import GRAD, Call
from tracelyze.collectors.signals.signal import Signal


class Mode(Signal):
    name = "mode"
    about = "Train or eval mode of the model and of the modules that behave differently in it, at every outermost call."
    cost = "5 us a call"
    columns = ("steps.model_in_train", "steps.modules_sensitive", "steps.modules_in_train")

    def __init__(self, recorder: Any) -> None:
        super().__init__(recorder)
        self._calls: list[Call] = []
        self._kinds: dict[tuple[int, int], str] = {}

    def forward(self, call: Call) -> None:
        training = sensitivity.in_train(call.model.sensitive)
        call.sensitive = len(call.model.sensitive)
        call.sensitive_in_train = len(training)
        if training:
            key = (call.model.number, len(training))
            if key not in self._kinds:
                self._kinds[key] = sensitivity.kinds(training)
            call.kinds = self._kinds[key]
        if call.mode == GRAD and len(self._calls) < 100:
            self._calls.append(call)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        others = set()
        if self.recorder.trainings.several:
            others = {call for call in self._calls if self._is_of_another(call, tracked.group)}
        trained = {call.model.number: call for call in self._calls if call.trained and call not in others}.values()
        if trained:
            row["model_in_train"] = all(call.in_train for call in trained)
            row["modules_sensitive"] = sum(call.sensitive for call in trained)
            row["modules_in_train"] = sum(call.sensitive_in_train for call in trained)
        self._calls = [call for call in self._calls if call in others or not (call.trained or call.dead)]

    def _is_of_another(self, call: Call, group: Any) -> bool:
        """Whether the call trains, but in another training than the one that steps."""
        return self.recorder.trainings.of_models(frozenset((call.model.number,))) not in (group, None)
