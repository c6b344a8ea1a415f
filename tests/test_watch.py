"""`tracelyze watch`: a run that another process still writes, looked at again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pytest

from tests.fork_server import client
from tracelyze import api, schema, watching
from tracelyze.analyzers.recorded import exits
from tracelyze.errors import InputError

pytestmark = pytest.mark.starts_programs
BATCH = 40
TYPES: dict[str, Any] = {"float64": pa.float64(), "int64": pa.int64(), "int32": pa.int32()}
FIELDS = pa.schema(
    [
        (name, TYPES.get(schema.STEPS.column(name).type) or getattr(pa, schema.STEPS.column(name).type)())
        for name in ("optimizer", "step", "time", "seconds", "loss", "backwards")
    ]
)


class Training:
    """A program that lives, and what the collector would write about it."""

    def __init__(self, run: Path) -> None:
        self.process = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        pid = self.process.pid
        self.run, self.folder, self.step = run, run / f"rank00000-attempt0-pid{pid}", 0
        start = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
        boot = exits.BOOT_ID.read_text().strip()
        self.who = {"schema_version": 1, "pid": pid, "pid_start": int(start), "boot_id": boot, "rank": 0}
        self.sink: IO[bytes] | None = None
        self.whole = 0
        run.mkdir()
        (run / schema.RUN_FILE).write_text(json.dumps(self.who | {"command": ["python", "train.py"]}))

    def train(self, loss: float) -> None:
        """Write BATCH more steps with this loss, and the beginning of a batch that is never finished."""
        if self.sink is None:
            self.folder.mkdir()
            (self.folder / schema.PROCESS_FILE).write_text(json.dumps(self.who))
            self.sink = (self.folder / "steps.arrows").open("wb", buffering=0)
            self.writer = pa.ipc.new_stream(self.sink, FIELDS)
        else:
            self.sink.truncate(self.whole)
            self.sink.seek(self.whole)
        steps = list(range(self.step + 1, self.step + BATCH + 1))
        self.step += BATCH
        times = [0.05 * step for step in steps]
        rows = [[0] * BATCH, steps, times, [0.05] * BATCH, [loss] * BATCH, [1] * BATCH]
        arrays = [pa.array(values, field.type) for values, field in zip(rows, FIELDS, strict=True)]
        self.writer.write_batch(pa.record_batch(arrays, schema=FIELDS))
        self.whole = self.sink.tell()
        self.sink.write(b"\xff\xff\xff\xff\x10\x03\x00\x00torn")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.sink is not None:
            self.sink.close()


@pytest.fixture
def training(tmp_path: Path) -> Iterator[Training]:
    one = Training(tmp_path / "run")
    yield one
    one.end()


def test_a_run_is_looked_at_until_it_ends_and_nothing_of_it_is_touched(training: Training) -> None:
    acts = iter([lambda: training.train(1.0), lambda: training.train(0.9), training.end])
    looks = []
    for look in watching.watch(training.run, 0.1, sleep=lambda _: next(acts)()):
        looks.append((look.diagnosis.run.steps, look.ended))
        if not look.ended:
            assert not list(training.run.rglob("*.parquet")), "streams of a living program stay as they are"
    assert looks == [(0, False), (BATCH, False), (2 * BATCH, False), (2 * BATCH, True)]


def test_waiting_for_a_busy_machine_makes_no_pause_longer(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    diagnose, pauses = api.diagnose, []

    def starved(path: Path) -> Any:
        time.sleep(2.0)
        return diagnose(path)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        training.end()

    monkeypatch.setattr(api, "diagnose", starved)
    training.train(1.0)
    list(watching.watch(training.run, 0.1, sleep=sleep))
    assert 0.1 <= pauses[0] < 2.0 / watching.SHARE, "what the processor did counts, not what the clock says"


def test_each_finding_is_told_once(training: Training) -> None:
    acts = iter([lambda: training.train(float("nan")), lambda: training.train(float("nan")), training.end])
    training.train(1.0)
    told = [one.rule for look in watching.watch(training.run, 0.1, lambda _: next(acts)()) for one in look.new]
    assert told.count("loss-nonfinite") == 1
    assert len(told) == len(set(told))


def test_a_run_that_vanishes_ends_the_watch(training: Training) -> None:
    def vanish(_: float) -> None:
        training.run.rename(training.run.with_name("gone"))

    with pytest.raises(InputError):
        list(watching.watch(training.run, 0.1, vanish))


def test_the_command_line_calls_the_pager_and_ends_when_something_critical_is_certain(training: Training) -> None:
    training.train(1.0)
    training.train(float("nan"))
    pager = "cat > finding.json; printf '%s at %s of %s' $TRACELYZE_RULE $TRACELYZE_STEP $TRACELYZE_RUN > said.txt"
    here = training.run.parent
    command = [sys.executable, "-m", "tracelyze", "watch", "run", "--every", "0.1", "--on-finding", pager]
    done = client.shared(client.COMMANDS).run(command, os.environ, cwd=here, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "critical, certain  loss-nonfinite" in done.stdout
    assert (here / "said.txt").read_text() == f"loss-nonfinite at {BATCH + 1} of run"
    assert json.loads((here / "finding.json").read_text())["rule"] == "loss-nonfinite"
    assert training.process.poll() is None
    assert not list(training.run.rglob("*.parquet"))


def test_a_program_that_is_killed_before_it_trains(training: Training) -> None:
    (look, *_) = list(watching.watch(training.run, 0.1, sleep=lambda _: training.end()))
    assert "the program is still running" in look.diagnosis.verdict_reason
    command = [sys.executable, "-m", "tracelyze", "watch", "run", "--every", "0.1"]
    done = client.shared(client.COMMANDS).run(command, os.environ, cwd=training.run.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "the program has ended: Nothing trained in this run" in done.stdout
    assert "killed before it trained" in done.stdout
    assert "unknown" not in done.stdout
