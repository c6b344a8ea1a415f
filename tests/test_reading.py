"""Files that are not what they should be: every reader refuses them in one line, and none hangs or fills the memory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tracelyze
from tracelyze import config, reading, reports, schema
from tracelyze.analyzers.kineto.reading.importer import import_traces
from tracelyze.analyzers.recorded import run_directory
from tracelyze.analyzers.recorded.columns import ParquetPart
from tracelyze.catalogue.entries import ThresholdNames
from tracelyze.errors import InputError
from tracelyze.importing import recordings

SAMPLE = Path(__file__).resolve().parent.parent / "sample_traces" / "healthy"
PROCESS = "rank00000-attempt0-pid1"
SECONDS = 60
"""A reader that needs longer hangs, whatever else the machine does."""


@contextmanager
def limited() -> Iterator[None]:
    """TimeoutError after SECONDS, even inside a read that never returns."""

    def hung(number: int, frame: object) -> None:
        raise TimeoutError("the reader hangs")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def answer(read: Callable[[], Any]) -> str:
    """The one line of the InputError that `read` raises, or an empty text. Any other exception fails the test."""
    with limited():
        try:
            read()
        except InputError as error:
            line = str(error)
            assert line.strip()
            assert "\n" not in line
            assert len(line) < 1000
            return line
    return ""


def judged(path: Path) -> str:
    """The answer of a diagnosis whose every text can be written as a report."""
    return answer(lambda: reports.render(tracelyze.diagnose(path), "json").encode())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLE, tmp_path / "run")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was imported from a profiler's trace."""
    folder = tmp_path_factory.mktemp("trace")
    kernels = [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": i * 10, "dur": 5} for i in range(50)]
    calls = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": i * 10, "dur": 4} for i in range(50)
    ]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": [*kernels, *calls]}))
    import_traces([folder / "trace.json"], folder / "run")
    return folder / "run"


# --- what a file is ---


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe"), ("zero", "a device"), (".", "a folder")):
        assert kind in answer(lambda name=name: reading.read_text(tmp_path / name))  # type: ignore[misc]
    with pytest.raises(FileNotFoundError):
        reading.read_text(tmp_path / "absent")


def test_files_end_at_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "sparse.json"
    file.touch()
    os.truncate(file, 50 << 30)
    assert "50 GiB" in answer(lambda: reading.read_text(file))
    assert len(reading.read_start(file, 1000)) == 1000
    assert reading.read_bytes(Path("/proc/self/status"), 1 << 20), "says that it holds nothing"
    file.write_text("12345")
    assert reading.read_text(file, 5) == "12345"
    assert "at most" in answer(lambda: reading.read_text(file, 4))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
        max_leaves=20,
    )
)
@settings(max_examples=50)
def test_json_is_read_as_python_does(value: Any) -> None:
    text = json.dumps(value)
    if all(character.isascii() or not 0xD800 <= ord(character) < 0xE000 for character in json.loads(json.dumps(text))):
        read = reading.parse_json(text)
        assert json.dumps(read) == json.dumps(
            json.loads(text, parse_int=lambda d: int(d) if len(d) <= 18 else float(d))
        )


def test_json_beyond_the_limits() -> None:
    assert reading.parse_json("1" * 400) == float("inf")
    assert reading.parse_json("-" + "1" * 5000) == float("-inf")
    assert reading.parse_json('"\\ud800x"') == "?x"
    assert reading.parse_json("[" * 64 + "]" * 64)
    for deep in ("[" * 65 + "]" * 65, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000):
        with pytest.raises(ValueError, match=r"nested|Expecting"):
            reading.parse_json(deep)
    assert reading.parse_object("[1]") == reading.parse_object(None) == reading.parse_object("{") == {}


# --- tables ---


def test_a_small_table_that_unpacks_to_gigabytes_is_refused(run: Path) -> None:
    file = run / PROCESS / "steps.parquet"
    chunk = pa.table({"step": pa.array([1], pa.int64()).take(pa.array([0] * 1_000_000, pa.int32()))})
    with pq.ParquetWriter(file, chunk.schema, compression="zstd") as writer:
        for _ in range(20):
            writer.write_table(chunk)
    assert file.stat().st_size < 100_000
    assert "claims 20,000,000 rows" in judged(run)


def test_a_word_that_is_repeated_without_end_is_refused(run: Path) -> None:
    file = run / PROCESS / "events.parquet"
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 500_000, pa.int32()), pa.array(["x" * 100_000]))
    pq.write_table(pa.table({"kind": words}), file, compression="zstd")
    assert file.stat().st_size < 50_000
    assert "a column of text unpacks to 46.6 GiB" in judged(run)


def test_tables_of_one_name_may_hold_other_columns_of_text(tmp_path: Path) -> None:
    """Which text is left in its dictionary is known from the last file of that name; the next one may differ."""
    layouts = [{"kind": ["exit"], "name": ["finished"]}, {"kind": ["exit"]}, {"text": ["x"], "value": [1.0]}]
    for number, columns in enumerate(layouts):
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / "events.parquet"
        pq.write_table(pa.table(columns), path)
        part = ParquetPart(path)
        for again in range(2):
            for name, values in columns.items():
                column = part.column(name)
                assert column.to_pylist() == values, again
                assert pa.types.is_dictionary(column.type) is isinstance(values[0], str)
            part.forget()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused(run: Path, compression: str) -> None:
    (run / PROCESS / "steps.parquet").unlink()
    batch = pa.record_batch({"step": pa.array([1] * 5_000_000, pa.int64())})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(str(run / PROCESS / "steps.arrows"), batch.schema, options=options) as writer:
        writer.write_batch(batch)
    assert "a compressed stream" in judged(run)


def test_a_stream_of_rows_that_take_no_space_is_refused(run: Path) -> None:
    (run / PROCESS / "steps.parquet").unlink()
    batch = pa.record_batch({"step": pa.nulls(1 << 26)})
    with pa.ipc.new_stream(str(run / PROCESS / "steps.arrows"), batch.schema) as writer:
        writer.write_batch(batch)
    assert "claims 67,108,864 rows" in judged(run)


def rewrite(file: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(pa.BufferReader(file.read_bytes()))), file)


@pytest.mark.parametrize("name", ["steps", "events", "reach"])
def test_a_column_that_is_there_twice_is_refused(name: str, run: Path) -> None:
    rewrite(run / PROCESS / f"{name}.parquet", lambda table: table.append_column("step", table["step"]))
    assert "has the column step twice" in judged(run)


def test_an_exit_code_that_is_no_number_is_none(run: Path) -> None:
    file = run / PROCESS / "events.parquet"
    infinite = pa.scalar(float("inf"))
    rewrite(file, lambda table: table.set_column(4, "value", pa.repeat(infinite, len(table))))
    assert judged(run) == ""


@pytest.mark.parametrize("text", ["{}", "x", "9" * 5000, "\0", "[" * 2000])
@pytest.mark.parametrize(("name", "column"), [("loss_calls", "input_shape"), ("optimizers", "options")])
def test_texts_of_a_table_may_be_anything(name: str, column: str, text: str, run: Path) -> None:
    def change(table: pa.Table) -> pa.Table:
        texts = pa.repeat(pa.scalar(text), len(table))
        return table.set_column(table.schema.get_field_index(column), column, texts)

    rewrite(run / PROCESS / f"{name}.parquet", change)
    assert judged(run) == ""


@pytest.mark.parametrize("change", [lambda table: table.slice(0, 0), lambda table: table.drop_columns(["kind"])])
def test_a_program_whose_end_was_lost_was_not_killed(change: Callable[[pa.Table], pa.Table], run: Path) -> None:
    """The exit status is there, as the C library wrote it."""
    rewrite(run / PROCESS / "events.parquet", change)
    diagnosis = tracelyze.diagnose(run)
    assert "killed" not in {one.rule for one in diagnosis.findings}
    (run / PROCESS / schema.STATUS_FILE).unlink()
    assert "killed" in {one.rule for one in tracelyze.diagnose(run).findings}


# --- manifests ---

WRONG: tuple[Any, ...] = (None, True, -1, 0.5, 10**400, "x", "\ud800", [], [[1]], {}, {"a": {"a": [1]}}, 1e300)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value, as the keys that lead there; of a list's items the first."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*at, key))


def _replaced(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = _replaced(value[at[0]], at[1:], new)
    return copy


def _manifests(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    return [(path, json.loads(path.read_text())) for path in sorted(run.rglob("*.json"))]


@pytest.mark.parametrize("name", ["run.json", f"{PROCESS}/process.json", "seen-5.json", f"{PROCESS}/stopped.txt"])
def test_every_field_of_a_manifest_with_every_wrong_type(run: Path, name: str) -> None:
    """Loading looks at every field; the diagnosis of all of them at once looks at what the rules make of them."""
    (run / "seen-5.json").write_text('{"argv": ["a"], "error": "b", "torch": true, "forwards": 1, "backwards": 1}')
    (run / PROCESS / "stopped.txt").write_text('{"reason": "full", "step": 3, "end": "exit", "code": 1}')
    file = run / name
    whole = json.loads(file.read_text())
    if "signals" in whole:
        whole["signals"] = dict(list(whole["signals"].items())[:1])  # one stands for all
    for number, at in enumerate(_places(whole)):
        wrong = WRONG[number % len(WRONG)]
        file.write_text(json.dumps(_replaced(whole, at, wrong)))
        answer(lambda: run_directory.load(run))
    for wrong in WRONG[::3]:
        everywhere = dict.fromkeys(whole, wrong) | {"schema_version": 1}
        file.write_text(json.dumps(everywhere))
        said = judged(run)
        assert not said, "what is of a wrong type is left out, and the tables are judged without it"


def test_null_may_stand_in_each_place_of_a_process(run: Path) -> None:
    file = run / PROCESS / "process.json"
    whole = json.loads(file.read_text())
    whole["signals"] = dict(list(whole["signals"].items())[:2])
    for at in _places(whole):
        if at not in ((), ("schema_version",)):
            file.write_text(json.dumps(_replaced(whole, at, None)))
            (process,) = tracelyze.load(run).processes
            assert None not in process.signals.values()


def test_a_field_of_a_wrong_type_is_named(run: Path) -> None:
    file = run / PROCESS / "process.json"
    facts = json.loads(file.read_text()) | {"rank": [1], "signals": "none", "clock": {"zero": "noon"}}
    file.write_text(json.dumps(facts))
    notes = " ".join(tracelyze.diagnose(run).run.notes)
    assert "process.json: rank is a list, not a count; it is left out" in notes
    assert "signals is text, not an object" in notes
    assert "clock.zero is text, not a finite number" in notes


def test_the_description_of_an_imported_trace_with_every_wrong_type(trace: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(trace, tmp_path / "run")
    for file, whole in _manifests(copy):
        for number, at in enumerate(_places(whole)):
            for wrong in (None, WRONG[number % len(WRONG)]):
                file.write_text(json.dumps(_replaced(whole, at, wrong)))
                judged(copy)
        file.write_text(json.dumps(whole))
    assert judged(copy) == ""


# --- all doors ---

KINDS = (
    "pipe",
    "device",
    "folder",
    "sparse",
    "empty",
    "zeros",
    "cut",
    "flipped",
    "noise",
    "nested",
    "digits",
    "absent",
)


def spoil(file: Path, kind: str, seed: int) -> None:
    """Puts something else in the place of `file`."""
    data = file.read_bytes()
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    elif kind == "folder":
        file.mkdir()
    elif kind == "sparse":
        file.write_bytes(data)
        os.truncate(file, 20 << 30)
    elif kind == "flipped" and data:
        at = seed % len(data)
        file.write_bytes(data[:at] + bytes([data[at] ^ (1 + seed % 255)]) + data[at + 1 :])
    elif kind != "absent":
        pieces = {
            "zeros": bytes(len(data)),
            "cut": data[: seed % (len(data) + 1)],
            "noise": bytes((seed * 7919 + i * 104729) % 251 for i in range(500)),
            "nested": b"[" * 200_000,
            "digits": b'{"schema_version": 1, "rank": ' + b"1" * 400 + b', "step": ' + b"9" * 5000 + b"}",
        }
        file.write_bytes(pieces.get(kind, b""))


def remove(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        file.rmdir()
    else:
        file.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("imported", [False, True])
def test_no_file_of_a_run_costs_more_than_a_line(imported: bool, trace: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trace if imported else SAMPLE, tmp_path / "run")
    for name in (schema.SIGNAL_FILE, schema.STOPPED_FILE, schema.STATUS_FILE):
        if not imported:
            (run / PROCESS / name).write_bytes(b"\0")
    files = sorted(path for path in run.rglob("*") if path.is_file())
    kept = {file: file.read_bytes() for file in files}

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.sampled_from(files), st.sampled_from(KINDS), st.integers(0, 1 << 30))
    def attack(file: Path, kind: str, seed: int) -> None:
        spoil(file, kind, seed)
        try:
            judged(run)
        finally:
            remove(file)
            for other in run.rglob("*.arrows"):
                other.unlink()
            file.write_bytes(kept[file])

    attack()
    assert judged(run) == ""


def test_text_that_is_no_utf8_is_read_as_far_as_it_is(tmp_path: Path) -> None:
    damaged = pa.array([b"whole", b"\xf2cut", None]).view(pa.string())
    expected = ["whole", "\ufffdcut", None]
    for column in (damaged, damaged.dictionary_encode()):
        assert reading.texts(tmp_path, pa.chunked_array([column])) == expected


@pytest.mark.parametrize("kind", [pa.ArrowNotImplementedError, pa.ArrowCapacityError, pa.ArrowTypeError])
def test_errors_of_pyarrow_that_are_no_value_errors_cost_a_line(
    kind: type[Exception], trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: Any, **_named: Any) -> None:
        raise kind("Integers with more than 64 bits not implemented")

    monkeypatch.setattr(pq, "ParquetFile", refuse)
    assert "import it again" in judged(trace)


@pytest.mark.parametrize("content", ["null", "[]", "1", '"log_history"'])
def test_a_state_that_is_no_object_costs_a_line(content: str, tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(content)
    assert "log_history is not a list of objects" in judged(file)


def test_a_time_with_hundreds_of_digits_loses_its_event_alone(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    times = [1, 10**400, *range(2, 300)]
    file.write_text(
        json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": at, "dur": 0.5} for at in times]})
    )
    assert judged(file) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_single_files_cost_no_more_than_a_line(kind: str, tmp_path: Path) -> None:
    sources = {
        "trace.json": json.dumps({"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2}]}),
        "log.csv": "step,loss\n1,2\n2,3\n",
        "log.jsonl": '{"step": 1, "loss": 2}\n',
        "trainer_state.json": '{"log_history": [{"step": 1, "loss": 2}]}',
        "tracelyze.toml": 'select = ["crash"]\n',
    }
    for name, text in sources.items():
        file = tmp_path / name
        file.write_text(text)
        spoil(file, kind, 12345)
        judged(file)
        answer(lambda file=file, name=name: recordings.import_recording(file, tmp_path / f"run-{name}-{kind}"))  # type: ignore[misc]
        answer(lambda file=file: config.load(file, tmp_path, ThresholdNames()))  # type: ignore[misc]
        remove(file)


def test_numbers_of_a_configuration_may_be_anything(tmp_path: Path) -> None:
    file = tmp_path / "tracelyze.toml"
    for number in ("1" * 400, "1" * 5000, "inf", "true", '"1"', "[" * 3000 + "]" * 3000):
        file.write_text(f"[thresholds.memory-leak]\nrelative = {number}\n")
        assert "tracelyze.toml" in answer(lambda: config.load(file, tmp_path, ThresholdNames()))


def test_links_to_regular_files_are_read(run: Path, tmp_path: Path) -> None:
    steps = run / PROCESS / "steps.parquet"
    steps.rename(tmp_path / "elsewhere.parquet")
    steps.symlink_to(tmp_path / "elsewhere.parquet")
    assert stat.S_ISLNK(steps.lstat().st_mode)
    assert tracelyze.diagnose(run).run.steps == tracelyze.diagnose(SAMPLE).run.steps


def test_a_trace_that_goes_on_as_zeros_ends_there(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2},'
    )
    os.truncate(file, 20 << 30)
    with limited():
        notes = " ".join(tracelyze.diagnose(file).run.notes)
    assert "nothing but zeros" in notes
