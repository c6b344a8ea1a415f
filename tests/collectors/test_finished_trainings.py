"""What a training leaves in memory when it is over: what plain Python would leave, and nothing of ours beside it."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from tests.collectors.conftest import Collect, program, run_plain
from tests.fork_server.client import FRAMEWORKS

# Updates by hand have no optimizer whose end would be noticed: the copies of one weight sample, indices and values,
# stay until the next training begins. They are copies of ours; the program's tensors are gone.
COPIES = {"by_hand": 2}


def alive(printed: str) -> dict[str, int]:
    return {line.split()[0]: int(line.split()[1]) for line in printed.splitlines()}


def test_nothing_of_a_finished_training_stays_alive(collect: Collect) -> None:
    command = (sys.executable, program("alive.py"))
    plain, recorded = alive(run_plain(*command).stdout), alive(collect(*command).process.stdout)
    assert len(plain) == 12
    beyond = {idiom: recorded[idiom] - plain[idiom] - COPIES.get(idiom, 0) for idiom in plain}
    assert {idiom: count for idiom, count in beyond.items() if count > 0} == {}


def test_nothing_of_a_frameworks_training_stays_alive(collect: Collect) -> None:
    packages = [name for name in ("transformers", "accelerate", "lightning") if importlib.util.find_spec(name)]
    if not packages:
        pytest.skip("no framework is installed (group frameworks)")
    command = (sys.executable, program("alive_frameworks.py"), *packages)
    plain = alive(run_plain(*command, modules=FRAMEWORKS).stdout)
    recorded = alive(collect(*command, modules=FRAMEWORKS).process.stdout)
    assert list(plain) == packages
    assert recorded == plain
