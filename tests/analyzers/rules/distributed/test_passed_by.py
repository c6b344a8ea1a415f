"""A DistributedDataParallel that is made and never called: which line calls the module inside it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import not_averaged, passed_by

STEP = """\
def step(self, x, y):
    self.optimizer.zero_grad()
    {call}
    {then}
    loss.backward()
    self.net.module.train()"""


def passed(make: Any, call: str, then: str = "log(loss)", called: bool = False) -> Any:
    sites = sites_of(STEP.format(call=call, then=then), backward="loss.backward()")
    made = {"site": 8, "role": "wrapper", "file": "train.py", "line": 40, "function": "__init__"}
    sites.append(made | {"source": "self.net = DistributedDataParallel(Net())"})
    if called:
        sites.append(sites[0] | {"site": 9, "role": "training-call", "line": 3, "source": call})
    return passed_by.of(make.process(sites=sites))


@pytest.mark.parametrize(
    ("call", "edited", "shown"),
    [
        ("loss = self.net.module.training_loss(x, y)", None, "loss = self.net(x, y)"),
        ("loss = mse(self.net.module(x), y)", "loss = mse(self.net(x), y)", "outputs = self.net(inputs)"),
        ("loss = mse(self.net.module.forward(x), y)", "loss = mse(self.net(x), y)", "outputs = self.net(inputs)"),
        ("loss = mse(self.net.module.head(x), y)", None, "loss = mse(self.net(x), y)"),
    ],
)
def test_a_call_past_the_wrapper(make, call: str, edited: str | None, shown: str) -> None:
    found = passed(make, call)
    place, diff = not_averaged.place(found), not_averaged.edit(found)
    assert place is not None
    assert (place.line, place.source) == (3, call)
    assert (diff and [one.strip() for one in diff.added]) == (edited and [edited])
    assert "instead, in line 3." in found.summary()
    assert found.code().startswith(f"{shown}  # ")


def test_a_call_of_the_variable_that_was_wrapped(make) -> None:
    assert not_averaged.place(passed(make, "loss = mse(inner(x), y)", called=True)).line == 3
    assert not_averaged.place(passed(make, "loss = mse(inner(x), y)")).line == 40, "where it is called is not known"
    several = passed(make, "loss = self.net.module.a(x)", "loss += self.net.module.b(x)")
    assert not_averaged.place(several).line == 40
    assert "by `.module`, by the variable" in several.summary()
    weights = passed(make, "decay = norm(self.net.module.parameters())")
    assert not_averaged.place(weights).line == 40, "which computes nothing with the model"


HELPER = """\
def run(body, head, x, y):
    features = body(x)
    predicted = head.module.predict(features)
    {then}
    return l1_loss(predicted, y)
def fit(self):
    loss = run(body, head, x, y)
    loss.backward()"""


def test_a_call_past_the_wrapper_in_a_function_that_calls_a_model(make) -> None:
    def found(then: str) -> Any:
        text = HELPER.format(then=then)
        backward, call = sites_of(text, **{"backward": "loss.backward()", "training-call": "features = body"})
        sites = [backward | {"function": "fit"}, call | {"function": "run"}]
        made = {"site": 8, "role": "wrapper", "file": "train.py", "line": 40, "function": "main"}
        sites.append(made | {"source": "head = DistributedDataParallel(Head())"})
        return passed_by.of(make.process(sites=sites))

    assert not_averaged.place(found("log(x)")).line == 3
    assert found("log(x)").code() == "predicted = head(features)  # forward has to compute what predict does"
    assert not_averaged.place(found("also = head.module.predict(x)")).line == 40, "which of them is not known"
