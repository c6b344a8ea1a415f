"""Modes of modules that are bypassed, statistics that are not set or set by validation: seen on real trainings."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program
from tracelyze.analyzers import diagnose

torch = pytest.importorskip("torch")

from tracelyze.collectors.program.modules import mode_overrides  # noqa: E402

RULES = ("train-override-bypassed", "direct-forward-call", "unset-running-state", "batchnorm-in-validation")


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("override late", {"train-override-bypassed": "warning"}),
        ("restored", {"train-override-bypassed": "warning"}),
        ("restored parts", {"train-override-bypassed": "warning"}),
        ("restored parts called", {"unset-running-state": "warning"}),
        ("restored called", {"unset-running-state": "warning"}),
        ("restored switched off", {}),
        ("frozen in init", {"unset-running-state": "warning"}),
        ("hooks", {"direct-forward-call": "warning"}),
        ("part hooks", {"direct-forward-call": "warning"}),
        ("part", {}),
        ("part called", {}),
        ("fresh", {"unset-running-state": "critical"}),
        ("spectral", {"unset-running-state": "info"}),
        ("spectral trained", {}),
        ("partly", {"batchnorm-in-validation": "warning"}),
        ("functional", {"batchnorm-in-validation": "warning"}),
        ("functional ok", {}),
    ],
)
def test_what_is_seen(collect: Any, how: str, expected: dict[str, str]) -> None:
    diagnosis = diagnose(collect(sys.executable, program("modes.py"), how).run, select=RULES)
    assert {finding.rule: finding.severity for finding in diagnosis.findings} == expected
    answers = {check.rule: check.why or check.status for check in diagnosis.checks}
    known = ("passed", "fired", "not-applicable")
    validated = [rule for rule in RULES if how != "hooks" or rule in ("train-override-bypassed", "direct-forward-call")]
    assert all(answers[rule] in known for rule in validated if rule != "unset-running-state")
    if how == "hooks":
        assert "its hook, a lambda (line 80): it runs only" in diagnosis.findings[0].summary
    if how == "part hooks":
        (finding,) = diagnosis.findings
        assert "self.body.forward(x)" in finding.location.source
    if how == "override late":
        (finding,) = diagnosis.findings
        assert finding.last_step == 20, "the first epoch"
        assert finding.location.source == "for _epoch in range(4):", "above it model.train() belongs"
        assert "def train" in finding.seen_at.source
    if how == "restored":
        (finding,) = diagnosis.findings
        assert "model.eval()" in finding.summary
        assert "in the whole run" in finding.title


class Freezes(torch.nn.Module):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        for p in self.parameters():
            p.requires_grad_(False)
        return self


class Logs(torch.nn.Module):
    def train(self, mode: bool = True) -> Any:
        self.mode = mode
        return super().train(mode)


def test_which_overrides_freeze() -> None:
    base = torch.nn.Module
    assert mode_overrides.freezes(Freezes, base)
    assert not mode_overrides.freezes(Logs, base)
    assert not mode_overrides.freezes(torch.nn.Linear, base)


class FreezesBackbone(torch.nn.Sequential):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self[0].eval()
        for p in self[0].parameters():
            p.requires_grad_(False)
        return self


class Evaluates(torch.nn.Sequential):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self[0].eval()
        return self


class Behind:
    freeze_norms = False


class Switched(FreezesBackbone):
    def __init__(self, *parts: Any, **settings: Any) -> None:
        super().__init__(*parts)
        vars(self).update(settings)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.hold()
        return self

    def hold(self) -> None:
        if self.frozen_stages >= 0 and self.options.freeze_norms and self.more["statistics"]:
            self[0].eval()


class AsArgument(FreezesBackbone):
    def train(self, mode: bool = True, freeze: bool = False) -> Any:
        super().train(mode)
        if freeze:
            self[0].eval()
        return self


def test_which_are_switched_off() -> None:
    on = type("On", (), {"freeze_norms": True})

    def off(stages: int, options: Any, **more: Any) -> bool:
        vars_of = {"frozen_stages": stages, "options": options, "more": more}
        return mode_overrides.is_switched_off(Switched(torch.nn.Linear(3, 3), **vars_of))

    held = on()
    held.freeze_norms = True
    switched = Behind()
    switched.freeze_norms = False
    assert not off(1, held, statistics=True)
    assert off(-1, held, statistics=True)
    assert off(1, switched, statistics=True)
    assert off(1, held, statistics=None)
    assert not mode_overrides.is_switched_off(FreezesBackbone(torch.nn.Linear(3, 3)))
    assert mode_overrides.is_switched_off(AsArgument(torch.nn.Linear(3, 3)))


def test_an_evaluation_that_is_written_as_a_mode() -> None:
    class Held(torch.nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self[0].train(False)
            return self

    class Both(torch.nn.Sequential):
        def train(self, mode: bool = True) -> Any:
            super().train(mode)
            self[0].train(mode)
            return self

    assert mode_overrides.freezes(Held, torch.nn.Module)
    assert not mode_overrides.freezes(Both, torch.nn.Module)


def test_what_is_untouched() -> None:
    evaluated = torch.nn.BatchNorm1d(3).eval()  # by its pretraining, before it was put in
    assert mode_overrides.untouched(FreezesBackbone(evaluated, torch.nn.Linear(3, 3)))
    assert not mode_overrides.untouched(Evaluates(evaluated, torch.nn.Linear(3, 3)))
    assert not mode_overrides.untouched(FreezesBackbone(torch.nn.Linear(3, 3)).train())


def test_frozen_parameters_beside_statistics_that_go_on() -> None:
    """requires_grad_(False) in the constructor holds no running statistics: that is what this train() is for."""
    normalised = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).requires_grad_(False)
    module = Evaluates(normalised, torch.nn.Linear(3, 3))
    assert mode_overrides.untouched(module)
    assert mode_overrides.only_statistics(module)
    assert not mode_overrides.untouched(module.train())
    plain = Evaluates(torch.nn.Linear(3, 3).requires_grad_(False), torch.nn.Linear(3, 3))
    assert not mode_overrides.untouched(plain), "nothing there changes"
    assert not mode_overrides.only_statistics(Evaluates(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3)))
