"""Loops of a function by their lines, whatever the version of Python lays out behind them."""

from __future__ import annotations

import sys
import textwrap
from types import CodeType

import pytest

from tracelyze.collectors.program.lines.loops import extents, stream_loops

HANDLED = """
    for x in y:
        try:
            train(x)
        except ValueError:
            skip(x)
        report(x)
        log(x)
"""
HANDLED_LAST = """
    for x in y:
        try:
            train(x)
        except ValueError:
            skip(x)
    done(x)
"""
NO_LOOP = """
    try:
        load()
    except OSError as error:
        say(error)
    except KeyError:
        give_up()
    with lock:
        build()
        if y:
            return
    train()
    report()
"""
TRIED_AGAIN = """
    while True:
        try:
            return load(y)
        except OSError:
            wait()
"""
WITHIN_WITH = """
    with autocast():
        with no_grad():
            for x in y:
                model(x)
    for epoch in y:
        with autocast():
            with no_grad():
                for x in epoch:
                    model(x)
        with opened(epoch) as file:
            write(file)
"""
IN_A_HANDLER = """
    try:
        load()
    except OSError:
        for x in y:
            make(x)
    else:
        use()
    for x in y:
        try:
            train(x)
        finally:
            free(x)
"""
COMPREHENSIONS = """
    kept = [f(x) for x in y]
    for b in kept:
        g([f(x, z) for x in b for z in b])
    done({x: 1 for x in y})
"""
LEFT = """
    for x in y:
        if x.bad:
            continue
        with autocast():
            loss = f(x)
        report(loss)
    else:
        done()
    end()
"""
HEAD_OF_ENDLESS = 2 if sys.version_info >= (3, 14) else 3  # before that, `while True` has no instruction of its own
YIELDS = """
    for shard in y:
        yield from shard
"""


@pytest.mark.parametrize(
    ("body", "found", "outermost"),
    [
        (HANDLED, [(2, 8)], [2]),
        (HANDLED_LAST, [(2, 6)], [2]),
        (NO_LOOP, [], []),
        (TRIED_AGAIN, [(HEAD_OF_ENDLESS, 6)], []),
        (WITHIN_WITH, [(4, 5), (6, 12), (9, 10)], [4, 6]),
        (IN_A_HANDLER, [(5, 6), (9, 13)], [5, 9]),
        (COMPREHENSIONS, [(3, 4)], [3]),
        (LEFT, [(2, 7)], [2]),
        (YIELDS, [(2, 3)], [2]),
    ],
)
def test_loops_are_the_same_in_every_version(body: str, found: list[tuple[int, int]], outermost: list[int]) -> None:
    """What handles an exception stands behind all other code from 3.12 on, comprehensions in their function."""
    source = f"def function(y):{body}"
    code = next(one for one in compile(textwrap.dedent(source), "a.py", "exec").co_consts if isinstance(one, CodeType))
    assert extents.loops(code) == found
    assert extents.heads_of_outermost(code) == outermost
    assert extents.loop_around(code, 40) is None


def test_the_loop_of_a_generator_that_hands_on() -> None:
    code = next(one for one in compile(f"def f(y):{YIELDS}", "a.py", "exec").co_consts if isinstance(one, CodeType))
    assert stream_loops.outermost(code) == 2
