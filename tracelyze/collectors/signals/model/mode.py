"""Train or eval mode of the model and of the modules that behave differently in it, at every outermost call."""

from __future__ import annotations

import json
import weakref
from typing import Any

from tracelyze.collectors.program.call import GRAD, Call, SensitiveModules
from tracelyze.collectors.program.modules import mode_overrides, mode_sensitivity
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

MAX_PRETRAINED = 20


def _drops(module: Any) -> bool:
    """Whether it is no normalisation: their statistics are often left as they were learned, on purpose."""
    return module is not None and not hasattr(module, "running_mean")


class Mode(Signal):
    name = "mode"
    about = "Train or eval mode of the model and of the modules that behave differently in it, at every outermost call."
    cost = "5 us a call"
    copied_columns = ("model_in_train", "modules_sensitive", "modules_in_train")
    columns = ("steps.model_in_train", "steps.modules_sensitive", "steps.modules_in_train")

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._calls: list[Call] = []
        # As calls found them: by model, how many are sensitive, and how many of these are in train mode.
        self._known: dict[tuple[int, int, int], SensitiveModules] = {}
        self._pretrained: list[tuple[weakref.ref[Any], int | None]] = []  # with the line that loaded each

    def pretrained(self, module: Any, missing: set[str]) -> None:
        if len(self._pretrained) < MAX_PRETRAINED:
            self._pretrained.append((weakref.ref(module), self.program.sites.here("pretrained")))

    def first_step(self, tracked: Tracked) -> None:
        """Models that are trained as from_pretrained left them, in eval mode; not those whose outputs are targets,
        which get no gradients, nor those that the program has put to evaluate by themselves since."""
        held: set[int] | None = None
        for one in list(self._pretrained):
            module = one[0]()
            if module is None or module.training or module not in mode_overrides.pretrained:
                continue
            if held is None:
                held = {id(p) for p in tracked.parameters() if p.grad is not None}
            own = list(module.parameters())
            if 2 * sum([id(p) in held for p in own]) <= len(own):
                continue
            self._pretrained.remove(one)
            dropping = [ref for ref in mode_sensitivity.sensitive_modules(self.torch, module) if _drops(ref())]
            if dropping and not mode_sensitivity.in_train(dropping):
                name = type(module).__name__
                facts = {"site": one[1], "optimizer": tracked.index, "modules": len(dropping)}
                self.context.record_event("pretrained-mode", name, json.dumps(facts))

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.model.sensitive and not call.replayed:
            training = mode_sensitivity.in_train(call.model.sensitive)
            key = (call.model.number, len(call.model.sensitive), len(training))
            if key not in self._known:
                self._known[key] = SensitiveModules(key[1], key[2], mode_sensitivity.kinds(training))
            call.sensitive = self._known[key]
        if call.mode == GRAD and len(self._calls) < 100:
            self._calls.append(call)

    def after_step(self, tracked: Any, row: dict[str, Any]) -> None:
        calls, several = self._calls, self.program.trainings.several
        if len(calls) == 1 and not several and calls[0].trained:  # nearly always
            call = calls.pop()
            row["model_in_train"] = call.in_train
            row["modules_sensitive"], row["modules_in_train"], _ = call.sensitive
            return
        trained: dict[int, Call] = {}
        left = []
        for call in self._calls:
            if several and self._is_of_another(call, tracked.training):
                left.append(call)
            elif call.trained:
                trained[call.model.number] = call
            elif not call.dead:
                left.append(call)
        self._calls = left
        if trained:
            row["model_in_train"] = all(call.in_train for call in trained.values())
            row["modules_sensitive"] = sum(call.sensitive.number for call in trained.values())
            row["modules_in_train"] = sum(call.sensitive.in_train for call in trained.values())

    def _is_of_another(self, call: Call, training: Any) -> bool:
        """Whether the call trains, but in another training than the one that steps."""
        return self.program.trainings.of_models(frozenset((call.model.number,))) not in (training, None)
