"""Logs made elsewhere become run directories: what is there is kept as it is, what is not there stays unknown."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracelyze
from tracelyze import analyzers
from tracelyze.errors import InputError
from tracelyze.importing import recordings
from tracelyze.importing.trackers import tensorboard

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

TRACES = Path(os.environ.get("TRACELYZE_TRACES", Path(__file__).resolve().parents[3] / "shared" / "traces"))
NAN = math.nan


def imported(file: Path, run: Path) -> Process:
    recordings.import_recording(file, run)
    (process,) = analyzers.load(run).processes
    return process


def column(process: Process, name: str, table: str = "steps") -> list[float | None]:
    """Values with None where nothing was recorded, NaN where a NaN was."""
    values, known = process.tables[table][name], process.tables[table].known(name)
    return [float(value) if there else None for value, there in zip(values, known, strict=True)]


def same(left: list[float | None], right: list[float | None]) -> bool:
    return repr([None if v is None else float(v) for v in left]) == repr(
        [None if v is None else float(v) for v in right]
    )


TRAINER_STATE = {
    "epoch": 2.0,
    "global_step": 30,
    "max_steps": 45,
    "num_train_epochs": 3,
    "is_world_process_zero": True,
    "log_history": [
        {"epoch": 0.5, "grad_norm": 2.5, "learning_rate": 5e-05, "loss": 1.25, "step": 10},
        {"epoch": 1.0, "eval_accuracy": 0.5, "eval_loss": 1.5, "eval_runtime": 3.2, "step": 15},
        {"epoch": 1.5, "grad_norm": NAN, "learning_rate": 3e-05, "loss": 0.0, "step": 20},
        {"epoch": 2.0, "eval_accuracy": 0.5, "eval_loss": NAN, "eval_runtime": 3.1, "step": 30},
        {"epoch": 2.0, "step": 30, "total_flos": 1e15, "train_loss": 0.625, "train_runtime": 99.0},
    ],
}


def test_trainer_state(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint-30" / "trainer_state.json"
    file.parent.mkdir()
    file.write_text(json.dumps(TRAINER_STATE))
    for source in (file, file.parent):
        process = imported(source, tmp_path / f"run-{source.name}")
        assert column(process, "step") == [10, 20]
        assert same(column(process, "loss"), [1.25, 0.0])
        assert same(column(process, "grad_norm"), [2.5, NAN])
        assert same(column(process, "lr"), [5e-05, 3e-05])
        assert column(process, "after_step", "evals") == [15, 30]
        assert same(column(process, "loss", "evals"), [1.5, NAN])
        assert not process.steps.has("seconds")
    manifest = json.loads((tmp_path / "run-trainer_state.json" / "run.json").read_text())
    assert manifest["source"]["kind"] == "trainer_state"
    assert manifest["source"]["max_steps"] == 45
    assert manifest["source"]["columns"]["lr"] == "learning_rate"


def test_csv_with_gaps_as_lightning_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "metrics.csv"
    file.write_text(
        "epoch,lr-AdamW,step,train_loss_step,val_loss\n0,0.1,9,,\n0,,9,2.5,\n0,,19,nan,\n0,,19,,3.5\n1,,29,-inf,\n1,,39,,\n"
    )
    process = imported(file, tmp_path / "run")
    assert column(process, "step") == [9, 19, 29]
    assert same(column(process, "loss"), [2.5, NAN, -math.inf])
    assert column(process, "lr") == [0.1, None, None]
    assert column(process, "loss", "evals") == [3.5]


@pytest.mark.parametrize(("every", "last"), [(1, None), (10, 300)])
def test_a_log_of_some_steps_says_how_many_there_were(every: int, last: int | None, tmp_path: Path) -> None:
    rows = [f"{step},{1 / step + 0.5}" for step in range(every, 30 * every + 1, every)]
    (tmp_path / "log.csv").write_text("\n".join(["step,loss", *rows]) + "\n")
    recordings.import_recording(tmp_path / "log.csv", tmp_path / "run")
    run = analyzers.diagnose(tmp_path / "run").run
    assert (run.steps, run.last_step, run.imported) == (30, last, True)


def test_one_time_for_all_steps_is_when_the_log_was_written(tmp_path: Path) -> None:
    rows = [f"{step},{1 / step + 0.5},1700000000" for step in range(1, 31)]
    (tmp_path / "log.csv").write_text("\n".join(["step,loss,time", *rows]) + "\n")
    recordings.import_recording(tmp_path / "log.csv", tmp_path / "run")
    assert analyzers.diagnose(tmp_path / "run").run.duration_s is None


@pytest.mark.parametrize(
    ("discriminator", "generator"), [("d_loss", "g_loss"), ("train/loss_D", "train/loss_G"), ("errD", "errG")]
)
def test_the_losses_of_two_adversaries_are_those_of_two_optimizers(
    discriminator: str, generator: str, tmp_path: Path
) -> None:
    rows = [f"{step},0.6,{'nan' if step > 30 else 1.2},0.001" for step in range(1, 41)]
    log = tmp_path / "gan.csv"
    log.write_text("\n".join([f"step,{discriminator},{generator},lr", *rows]))
    steps = imported(log, tmp_path / "run")
    assert column(steps, "optimizer") == [0.0, 1.0] * 40
    assert column(steps, "loss")[:4] == [0.6, 1.2, 0.6, 1.2]
    assert set(column(steps, "lr")) == {0.001}
    diagnosis = tracelyze.diagnose(log)
    assert [one.title for one in diagnosis.findings] == [
        "The loss of the generator (optimizer 1) became NaN at step 31"
    ]


@pytest.mark.parametrize("policy", ["policy_loss", "train/policy_gradient_loss", "actor_loss", "loss/pg"])
def test_the_loss_of_a_policy_is_that_of_a_training_which_acts(policy: str, tmp_path: Path) -> None:
    """A log of PPO has losses of its parts alone: they can become NaN, and have no minimum to keep to."""
    rows = [f"{step},{0.01 * (-1) ** step},{50 / step},1.2" for step in range(1, 61)]
    log = tmp_path / "ppo.csv"
    log.write_text("\n".join([f"step,{policy},value_loss,mean_reward", *rows]))
    diagnosis = tracelyze.diagnose(log)
    assert (diagnosis.verdict, diagnosis.findings) == ("ok", [])
    reasons = {check.rule: check.reason for check in diagnosis.checks}
    assert reasons["loss-divergence"].startswith("The model acts between its steps (reinforcement learning)")


def test_rows_of_one_step_that_disagree_stay_two_rows(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss\n1,1.0\n2,nan\n2,0.5\n")
    assert same(column(imported(file, tmp_path / "run"), "loss"), [1.0, NAN, 0.5])


def test_jsonl_with_nested_names_and_a_cut_off_end(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(
        '{"_step": 0, "train": {"loss": 4.0, "grad_norm": 1.0}, "note": "a\u2028b"}\n\n'
        '{"_step": 1, "train": {"loss": NaN}, "loss_scale": 65536}\n{"_step": 2, "tr'
    )
    process = imported(file, tmp_path / "run")
    assert same(column(process, "loss"), [4.0, NAN])
    assert column(process, "grad_norm") == [1.0, None]
    assert column(process, "scale") == [None, 65536.0]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.one_of(st.none(), st.floats()), st.one_of(st.none(), st.floats(width=32))), min_size=1, max_size=30
    ).filter(lambda rows: any(loss is not None for loss, _ in rows)),
    form=st.sampled_from(["csv", "jsonl", "json", "tsv"]),
)
def test_every_value_comes_back_as_it_was(
    rows: list[tuple[float | None, float | None]], form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    file = folder / f"log.{form}"
    records: list[dict[str, Any]] = [{"step": n, "loss": a, "grad_norm": b} for n, (a, b) in enumerate(rows)]
    if form in ("csv", "tsv"):
        comma = "," if form == "csv" else "\t"
        lines = [comma.join("" if value is None else repr(value) for value in record.values()) for record in records]
        file.write_text("\n".join([comma.join(records[0]), *lines]) + "\n")
    else:
        file.write_text("\n".join(map(json.dumps, records)) if form == "jsonl" else json.dumps(records))
    process = imported(file, folder / "run")
    kept = [record for record in records if record["loss"] is not None or record["grad_norm"] is not None]
    for name in ("step", "loss", "grad_norm"):
        assert same(column(process, name), [record[name] for record in kept])


BAD = {
    "no step column": ("a.csv", "hour,loss\n1,2\n", "has no column that numbers the steps.*hour, loss"),
    "no loss column": ("a.csv", "step,accuracy\n1,2\n", "has no loss.*step, accuracy"),
    "no number": ("a.csv", "step,loss\n1,2.0\n2,oops\n", "line 3: loss is 'oops', not a number"),
    "prose": ("a.txt", "Once upon a time\nthere was a loss\n", "not a log that tracelyze reads"),
    "empty": ("a.csv", " \n", "is empty"),
    "header only": ("a.csv", "step,loss\n", "holds no rows"),
    "broken line": ("a.jsonl", '{"step": 1, "loss": 1}\n{"step": 2,\n{"step": 3, "loss": 1}\n', "line 2 is not JSON"),
    "list of numbers": ("a.json", "[1, 2]", "no list of objects"),
    "a trace": ("a.json", '{"traceEvents": []}', "a profiler trace"),
    "damaged state": ("trainer_state.json", '{"log_history": 3}', "log_history is not a list"),
    "checkpoint": ("model.pt", "PK\x03\x04", "a ZIP archive, as torch.save writes"),
    "damaged database": ("mlflow.db", "SQLite format 3\0", "a SQLite database that is damaged"),
    "cut pickle": ("snapshot.pickle", "\udc80\x05\udc95\x00", "a pickle that is cut off"),
    "binary": ("a.csv", "\udcff\udcfe\x00", "not a log that can be read"),
}


@pytest.mark.parametrize(("name", "text", "message"), BAD.values(), ids=BAD)
def test_what_is_no_log_is_refused_in_one_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message) as refused:
        recordings.import_recording(file, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_is_not_touched(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,loss\n1,2\n")
    with pytest.raises(InputError, match="is not empty"):
        recordings.import_recording(file, tmp_path)
    assert list(tmp_path.iterdir()) == [file]


def crc(data: bytes) -> int:
    """CRC-32C, bit by bit, masked as TFRecords have it."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def part(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def event(time: float, step: int, tag: str, value: float, *, tensor: bool = False) -> bytes:
    """One TFRecord with a scalar, as SummaryWriter (simple_value) or TensorFlow 2 (tensor) writes it."""
    number = part(8, b"\x08\x01" + part(4, struct.pack("<f", value))) if tensor else b"\x15" + struct.pack("<f", value)
    data = b"\x09" + struct.pack("<d", time) + b"\x10" + varint(step) + part(5, part(1, part(1, tag.encode()) + number))
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", crc(length)) + data + struct.pack("<I", crc(data))


def test_checksum_is_crc32c() -> None:
    masked = (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720's check value
    assert crc(b"123456789") == tensorboard._masked(memoryview(b"123456789")) == masked


@pytest.mark.parametrize("tensor", [False, True])
def test_event_file(tmp_path: Path, tensor: bool) -> None:
    file = tmp_path / "events.out.tfevents.1.host"
    records = [
        event(100.0, 300, "train/loss", 2.0, tensor=tensor),
        event(100.5, 300, "train/lr", 0.5, tensor=tensor),
        event(101.0, 301, "train/loss", NAN, tensor=tensor),
        event(102.0, 301, "val/loss", 3.0, tensor=tensor),
    ]
    file.write_bytes(b"".join(records))
    made = recordings.import_recording(file, tmp_path / "run")
    assert (made.steps, made.evals) == (2, 1)
    assert "imported 2 steps and 1 evaluations" in made.words()
    (process,) = analyzers.load(tmp_path / "run").processes
    assert column(process, "step") == [300, 301]
    assert same(column(process, "loss"), [2.0, NAN])
    assert column(process, "lr") == [0.5, None]
    assert column(process, "time") == [0.0, 1.0]
    assert column(process, "loss", "evals") == [3.0]


@pytest.mark.parametrize(("cut", "says"), [(-3, "ends in the middle of a record"), (None, "damaged at byte")])
def test_damaged_event_file_is_read_up_to_the_damage(tmp_path: Path, cut: int | None, says: str) -> None:
    file = tmp_path / "events.out.tfevents.1.host"
    last = event(3.0, 3, "loss", 1.0)
    flipped = last if cut else last[:-6] + bytes([last[-6] ^ 1]) + last[-5:]
    file.write_bytes((event(1.0, 1, "loss", 3.0) + event(2.0, 2, "loss", 2.0) + flipped)[:cut])
    summary = recordings.import_recording(file, tmp_path / "run").words()
    assert says in summary
    (process,) = analyzers.load(tmp_path / "run").processes
    assert column(process, "loss") == [3.0, 2.0]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 200), byte=st.integers(1, 255))
def test_no_damage_to_an_event_file_crashes_the_reader(tmp_path: Path, position: int, byte: int) -> None:
    data = bytearray(event(1.0, 1, "loss", 3.0) + event(2.0, 2, "loss", 2.0) + event(3.0, 3, "loss", 1.0))
    position %= len(data)
    data[position] ^= byte
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(data)
    rows, damage = tensorboard.read_scalars(file)
    assert damage
    assert [row["loss"] for row in rows] == [3.0, 2.0, 1.0][: position // (len(data) // 3)]


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"events.out.tfevents.{number}").write_bytes(event(number, 1, "loss", 3.0))
    with pytest.raises(InputError, match="starts over at step 1"):
        recordings.import_recording(tmp_path, tmp_path / "run")
    for number, name in ((1, "one"), (2, "two")):
        (tmp_path / "above" / name).mkdir(parents=True)
        (tmp_path / f"events.out.tfevents.{number}").rename(tmp_path / "above" / name / "events.out.tfevents.1")
    with pytest.raises(InputError, match="holds no event files itself; give one of its runs"):
        recordings.import_recording(tmp_path / "above", tmp_path / "run")


def test_a_folder_for_each_phase_is_one_training(tmp_path: Path) -> None:
    """As Keras writes them, and `add_scalars` of PyTorch, whose own file holds nothing."""
    for folder, tag, loss in (("train", "epoch_loss", 2.0), ("validation", "epoch_loss", 3.0)):
        (tmp_path / "keras" / folder).mkdir(parents=True)
        data = b"".join(event(step, step, tag, loss) for step in range(3))
        (tmp_path / "keras" / folder / "events.out.tfevents.1").write_bytes(data)
    process = imported(tmp_path / "keras", tmp_path / "run")
    assert column(process, "loss") == [2.0, 2.0, 2.0]
    assert column(process, "loss", "evals") == [3.0, 3.0, 3.0]


def test_real_event_files(tmp_path: Path) -> None:
    files = sorted((TRACES / "tensorboard").glob("*tfevents*"))
    if not files:
        pytest.skip("no recorded event files: set TRACELYZE_TRACES to the folder that holds them")
    counts = []
    for number, file in enumerate(files):
        recordings.import_recording(file, tmp_path / str(number))
        (process,) = analyzers.load(tmp_path / str(number)).processes
        counts.append(len(process.steps))
        assert set(map(float, process.steps["step"] % 128)) == {0.0}
        assert process.steps["loss"].min() > 0
    assert counts == [1534, 543]
