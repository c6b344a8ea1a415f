"""Backwards under no_sync(): which line keeps the last one of a step from averaging the gradients."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import not_averaged, unsynced

LOOP = """\
def fit(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        {opened}
        with context:
            loss.backward()
        if {stepped}:
            optimizer.step()
            optimizer.zero_grad()"""
LAST = "(i + 1) % n == 0"


def found(make: Any, opened: str, stepped: str = LAST, wrapped: bool = True) -> Any:
    sites = sites_of(LOOP.format(opened=opened, stepped=stepped), backward="loss.backward()", step="optimizer.step()")
    models = [{"model": 0, "name": "DistributedDataParallel" if wrapped else "Net"}]
    return unsynced.of(make.process(sites=sites, models=models))


@pytest.mark.parametrize(
    ("opened", "mended"),
    [
        ("context = nullcontext() if i % n == 0 else model.no_sync()", f"context = nullcontext() if {LAST} else"),
        ("context = model.no_sync() if i % n else nullcontext()", f"context = model.no_sync() if not {LAST} else"),
        ("context = nullcontext() if first else model.no_sync()", None),
        ("context = model.no_sync()", None),
    ],
)
def test_the_line_that_keeps_gradients_local(make: Any, opened: str, mended: str | None) -> None:
    one = found(make, opened)
    diff = not_averaged.edit(one)
    assert not_averaged.place(one).line == 3
    assert (diff is not None) == (mended is not None)
    assert diff is None or diff.added[0].strip().startswith(mended)
    assert "line 3 keeps" in one.title(2)


def test_no_sync_that_ends_as_the_optimizer_steps(make: Any) -> None:
    assert found(make, f"context = nullcontext() if {LAST} else model.no_sync()") is None
    assert found(make, "context = model.no_sync() if not last else nullcontext()", "last") is None
    assert found(make, "context = nullcontext()") is None
    assert found(make, "context = nullcontext() if i % n == 0 else model.no_sync()", wrapped=False) is None


NAMED = """\
def fit(model, loader, optimizer):
    for i, (x, y) in enumerate(loader):
        {given}
        with {opened}:
            loss.backward()
        if (i + 1) % n == 0:
            optimizer.step()
            optimizer.zero_grad()"""


def by_name(make: Any, given: str, opened: str) -> Any:
    text = NAMED.format(given=given, opened=opened)
    sites = sites_of(text, backward="loss.backward()", step="optimizer.step()")
    return unsynced.of(make.process(sites=sites, models=[{"model": 0, "name": "DistributedDataParallel"}]))


@pytest.mark.parametrize(
    ("given", "opened", "mended"),
    [
        ("sync = i % n == 0", "nullcontext() if sync else model.no_sync()", f"sync = {LAST}"),
        ("keep = i % n != 0", "model.no_sync() if keep else nullcontext()", f"keep = not {LAST}"),
        ("sync = i % n == 0", "model.no_sync() if not sync else nullcontext()", f"sync = {LAST}"),
        ("sync = i % every == 0", "nullcontext() if sync else model.no_sync()", None),  # it may not know n
    ],
)
def test_a_condition_that_another_line_gives_a_name(make: Any, given: str, opened: str, mended: str | None) -> None:
    one = by_name(make, given, opened)
    assert not_averaged.place(one).line == 3
    assert not_averaged.seen(one).line == 4
    assert "the condition of line 3" in one.fix()
    diff = not_averaged.edit(one)
    assert (diff.added[0].strip() if diff else None) == mended


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        (f"last = {LAST}", "nullcontext() if last else model.no_sync()"),
        (f"last = {LAST}", "model.no_sync() if not last else nullcontext()"),
    ],
)
def test_a_name_that_holds_as_the_optimizer_steps(make: Any, given: str, opened: str) -> None:
    assert by_name(make, given, opened) is None


@pytest.mark.parametrize(
    ("opened", "mended"),
    [
        ("model.no_sync() if last else nullcontext()", "model.no_sync() if not last else nullcontext()"),
        ("nullcontext() if not last else model.no_sync()", "nullcontext() if last else model.no_sync()"),
    ],
)
def test_a_name_that_the_step_goes_by_is_asked_the_wrong_way_round(make: Any, opened: str, mended: str) -> None:
    """The line that gives the name its value is right: the optimizer steps by it."""
    text = NAMED.format(given=f"last = {LAST}", opened=opened).replace(f"if {LAST}:", "if last:")
    sites = sites_of(text, backward="loss.backward()", step="optimizer.step()")
    one = unsynced.of(make.process(sites=sites, models=[{"model": 0, "name": "DistributedDataParallel"}]))
    assert not_averaged.place(one).line == 4
    assert "the condition of line 4" in one.fix()
    diff = not_averaged.edit(one)
    assert diff.added[0].strip() == f"with {mended}:"
