"""Which calls without autograd may be skipped."""

from __future__ import annotations

from typing import Any

import torch

from tracelyze.collectors.program.call import NO_GRAD, Call, EvaluatedLosses
from tracelyze.collectors.program.consumed.asides import MAX_KINDS, Asides
from tracelyze.collectors.program.models import Model
from tracelyze.collectors.program.progress import Progress


def evaluated(model: Model) -> Call:
    call = Call(model, 0.0, 1.0, 0, NO_GRAD)
    call.evaluated = EvaluatedLosses()
    return call


def test_models_that_are_made_anew_for_each_evaluation_are_forgotten() -> None:
    nothing: Any = None  # neither a line nor a batch of a loader is read here
    asides = Asides(torch, Progress(), nothing, nothing)
    modules = [torch.nn.Linear(2, 2) for _ in range(10 * MAX_KINDS)]
    for number, module in enumerate(modules):
        asides.know(evaluated(Model(torch, number, module)))
    known = [asides.may_be(module) for module in modules]
    assert known[-1]
    assert sum(known) <= MAX_KINDS


def test_a_module_at_the_place_of_one_that_is_gone_is_another() -> None:
    nothing: Any = None
    asides, module = Asides(torch, Progress(), nothing, nothing), torch.nn.Linear(2, 2)
    asides.know(evaluated(Model(torch, 0, module)))
    other = torch.nn.Linear(2, 2)
    asides._models[id(other)] = asides._models[id(module)]
    assert asides.like(other, torch.ones(1, 2), 0.0) is None
    assert asides.may_be(other)
