"""Reading: every layout of the same events gives the same events; broken files give an answer or one line."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kineto.made import training, write
from tracelyze.analyzers.kineto import diagnose_traces, is_trace
from tracelyze.analyzers.kineto.reading import records, source
from tracelyze.analyzers.kineto.reading.events import Span
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.reading.records import TraceRecords
from tracelyze.analyzers.kineto.reading.source import TraceBytes
from tracelyze.analyzers.kineto.timeline.categories import Activity
from tracelyze.errors import InputError


def spans(path: Path) -> tuple[list[tuple[Any, ...]], TraceRecords]:
    """Name, start, length and correlation of every complete event, as the block reader sees them."""
    with TraceBytes(path) as opened:
        found = TraceRecords(opened)
        read = [event for events in found for event in events if type(event) is Span]
    return [(e.name, e.ts, e.dur, e.args.correlation if e.args else -1) for e in read], found


def expected(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    chosen = [event for event in events if event.get("ph") == "X"]
    return [
        (e.get("name", ""), float(e["ts"]), float(e.get("dur", 0)), (e.get("args") or {}).get("correlation", -1))
        for e in chosen
    ]


LAYOUTS = [{}, {"indent": 1}, {"indent": 2}, {"separators": (",", ":")}, {"indent": 4, "separators": (" ,", " : ")}]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
@pytest.mark.parametrize("block", [64, 1 << 12, 1 << 17])
def test_every_layout_gives_the_same_events(tmp_path, monkeypatch, layout, suffix, block):
    monkeypatch.setattr(records, "BLOCK", block)
    document = training(steps=2, kernels=30).document() | {"traceName": 'a "quoted" name', "nested": [{"a": [1, {}]}]}
    read, found = spans(write(tmp_path / f"trace{suffix}", document, **layout))
    assert read == expected(document["traceEvents"])
    assert found.properties == {key: value for key, value in document.items() if key != "traceEvents"}
    assert not found.truncated
    assert (found.lost, found.repaired) == (0, 0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_list_form(tmp_path, layout):
    events = training(steps=2).events
    assert spans(write(tmp_path / "trace.json", events, **layout))[0] == expected(events)


def test_keys_behind_the_events_and_byte_order_mark(tmp_path):
    document = {"traceEvents": training(steps=1).events, "distributedInfo": {"rank": 5}}
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(document).encode())
    assert spans(path)[1].properties == {"distributedInfo": {"rank": 5}}


def test_gzip_of_several_members_with_zeros_behind(tmp_path):
    text = json.dumps(training(steps=2).document()).encode()
    middle = len(text) // 2
    path = tmp_path / "trace.bin"
    path.write_bytes(gzip.compress(text[:middle]) + gzip.compress(text[middle:]) + b"\0" * 100)
    assert spans(path)[0] == expected(json.loads(text)["traceEvents"])


name = st.text(
    st.one_of(st.sampled_from(list('}{[],:"\\\n\t ')), st.characters(exclude_categories=["Cs"])), max_size=30
) | st.sampled_from(["},\n {", '"traceEvents": [', '}, {"ph": "X"', "]}", "\\", "\u2028"])
value = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(-1e6, 1e6) | name,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(name, inner, max_size=3),
    max_leaves=6,
)
event = st.fixed_dictionaries(
    {"ph": st.sampled_from(["X", "X", "X", "M", "i", "s", "f", "C"]), "ts": st.integers(0, 10**9)},
    optional={
        "name": name,
        "cat": name,
        "dur": st.integers(0, 10**6),
        "args": st.dictionaries(name, value, max_size=3),
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(event, max_size=12), st.dictionaries(name, value, max_size=3), st.sampled_from(LAYOUTS), st.booleans())
def test_any_document_is_read_as_json_reads_it(tmp_path, monkeypatch, events, others, layout, shuffled):
    monkeypatch.setattr(records, "BLOCK", 64)
    others.pop("traceEvents", None)
    document = (
        {"traceEvents": events, **others}
        if shuffled
        else {**others, "decoy": {"traceEvents": [1]}, "traceEvents": events}
    )
    read, found = spans(write(tmp_path / "trace.json", document, **layout))
    assert read == expected(events)
    assert found.properties == {key: value for key, value in document.items() if key != "traceEvents"}


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_truncated_files_are_used_as_far_as_they_go(tmp_path, share, suffix):
    made = training(steps=6)
    path = made.write(tmp_path / f"trace{suffix}")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    trace = read_trace(path)
    assert trace.truncated
    assert 0.2 * share < trace.events / len(made.events) < 1.2 * share
    assert any("incomplete" in note for note in diagnose_traces(path).run.notes)


BROKEN = {
    "bare nan": ('"dur": 11', '"dur": 11, "args": {"x": nan}', 0),
    "infinity": ('"dur": 11', '"dur": 11, "y": -Infinity', 0),
    "stray escape": ('"name": "e5"', '"name": "C:\\Users"', 0),
    "unescaped quote": ('"name": "e5"', '"name": "e"5"', 1),
    "bare word": ('"name": "e5"', '"name": word', 1),
    "text as time": ('"ts": 50,', '"ts": "50",', 0),
    "no time": ('"ts": 50,', '"ts": null,', 1),
    "raw newline": ('"name": "e5"', '"name": "e\n5"', 0),
    "huge number": ('"ts": 50,', '"ts": 1e999,', 1),
    "missing comma": ('}, {"ph": "X", "name": "e5"', '} {"ph": "X", "name": "e5"', 0),
    "arguments no object": ('"dur": 11', '"dur": 11, "args": [1]', 0),
    "huge correlation": ('"dur": 11', '"dur": 11, "args": {"correlation": 123456789012345678901234567890}', 0),
}


@pytest.mark.parametrize("block", [64, 1 << 17])
@pytest.mark.parametrize("fault", BROKEN)
def test_one_broken_event_costs_at_most_itself(tmp_path, monkeypatch, fault, block):
    monkeypatch.setattr(records, "BLOCK", block)
    events = [
        {"ph": "X", "name": f"e{i}", "cat": "cpu_op", "ts": 10 * i, "dur": 11 if i == 5 else 5} for i in range(40)
    ]
    before, after, lost = BROKEN[fault]
    text = json.dumps({"traceEvents": events, "rank": 3})
    assert before in text
    path = tmp_path / "trace.json"
    path.write_text(text.replace(before, after))
    read, found = spans(path)
    assert len(read) == 40 - lost
    assert found.lost == lost
    assert found.properties == {"rank": 3}


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(
        b'{"traceEvents": [{"ph": "X", "name": "a\xff\xfeb", "ts": 1}, {"ph": "X", "name": "c", "ts": 2}]}'
    )
    read, found = spans(path)
    assert [name for name, *_ in read] == ["a??b", "c"]
    assert found.repaired == 1


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"  \n ", "blank"),
        (b"\x1f\x8b\x08\x00", "ends early"),
        ("{}".encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbf[]", "no events"),
        (b"not json at all", "not JSON"),
        (b'{"a": 1}', "no key traceEvents"),
        (b'{"deviceProperties": [', "cut short"),
        (b"[[1, 2, 3], [4, 5, 6]]", "no events"),
        (b'{"traceEvents": []}', "no events"),
        (b"\x1f\x8b\x08\x00garbage", "damaged|ends early"),
        (b"[" * 300_000, "no events"),
        (b'{"traceEvents": [{"a":' + b"[" * 300_000, "no events"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content, reason):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as refused:
        read_trace(path)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for name, reason in (("pipe.json", "not a regular file"), ("loop.json", "cannot be read")):
        with pytest.raises(InputError, match=reason):
            diagnose_traces(tmp_path / name)
    assert not is_trace(tmp_path)


def test_missing_file_and_folder_without_traces(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        diagnose_traces(tmp_path / "none.json")
    with pytest.raises(InputError, match="no trace in this folder"):
        diagnose_traces(tmp_path)


def test_file_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "FREE_EXPANSION", 1 << 20)
    pack = zlib.compressobj(9, wbits=31)
    record = b'{"ph": "X", "name": "a", "cat": "cpu_op", "ts": 1, "dur": 1},'
    path = tmp_path / "trace.json.gz"
    path.write_bytes(
        b"".join([pack.compress(b'{"traceEvents": ['), *(pack.compress(record) for _ in range(60_000)), pack.flush()])
    )
    with pytest.raises(InputError, match=r"unpacks to more than 200 times.*--max-gib"):
        read_trace(path)
    monkeypatch.setattr(source.ALLOWED, "gib", 1)
    assert read_trace(path).events == 60_000
    monkeypatch.setattr(source.ALLOWED, "gib", 0.001)
    with pytest.raises(InputError, match=r"more than 0.001 GiB of JSON.*--max-gib"):
        read_trace(path)


LIGHT = """
import sys
from tracelyze.analyzers.kineto import diagnose_traces
diagnose_traces(sys.argv[1])
print(sorted({"pandas", "pyarrow", "torch", "typer", "plotly"} & set(sys.modules)))
"""


@pytest.mark.starts_programs
def test_a_trace_is_judged_without_heavy_imports(tmp_path):
    path = training(steps=4).write(tmp_path / "trace.json")
    done = subprocess.run([sys.executable, "-c", LIGHT, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


HOSTILE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (320 << 20, 320 << 20))  # half of it is Python with numpy
from tracelyze.analyzers.kineto import diagnose_traces
from tracelyze.errors import InputError
try:
    print("answer", diagnose_traces(sys.argv[1]).verdict)
except InputError as error:
    print("refused", error)
"""


@pytest.mark.starts_programs
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the memory limit of a process is Linux's")
@pytest.mark.parametrize(
    ("opening", "filler"),
    [
        (b"", b"[" * 1000),
        (b"", b'{"a":' * 200),
        (b"", b" " * 1000),
        (b"", b'"' + b"x" * 998),
        (b"", b"0" * 1000),
        (b"", b'},{"ph":' * 125),
        (b'{"ph": "X", "name": "', b"x" * 1000),
        (b'{"ph": "X", "args": {"a": [', b'{"a":1},' * 125),
        (b'{}], "a": [', b'{"a":1},' * 125),
    ],
)
def test_much_nonsense_in_a_small_file_stays_within_memory(tmp_path, opening, filler):
    pack = zlib.compressobj(1, wbits=31)
    path = tmp_path / "trace.json.gz"
    head = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}, '
    parts = [pack.compress(head + opening), *(pack.compress(filler) for _ in range(10_000)), pack.flush()]
    path.write_bytes(b"".join(parts))
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # each takes address space
    command = [sys.executable, "-c", HOSTILE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=one_thread)
    assert done.stdout.startswith(("answer", "refused")), done.stderr[-500:]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_traces_end_in_an_answer_or_a_refusal(tmp_path, monkeypatch, data):
    monkeypatch.setattr(records, "BLOCK", data.draw(st.sampled_from([64, 1 << 10, 1 << 17])))
    text = bytearray(json.dumps(training(steps=3, kernels=8, loading=300, communicating=50).document()).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(text) - 1))
        damage = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"}", b"{", b"]", b'"', b"-1e308", b"null", b"9" * 30])
        )
        text[place : place + data.draw(st.integers(0, 8))] = damage
    path = tmp_path / "trace.json"
    path.write_bytes(bytes(text))
    try:
        diagnosis = diagnose_traces(path)
    except InputError:
        return
    json.dumps(diagnosis.to_dict(), allow_nan=False)
    assert not [check for check in diagnosis.checks if "failed" in check.reason]


odd_number = st.integers(-(2**70), 2**70) | st.floats() | st.none() | st.text(max_size=3)
odd_event = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(
            ["kernel", "cpu_op", "cuda_runtime", "user_annotation", "gpu_memcpy", "python_function", "odd"]
        ),
    },
    optional={
        "name": st.sampled_from(
            ["ProfilerStep#1", "ProfilerStep#2", "Optimizer.step#A", "cudaLaunchKernel", "nccl:x", "ncclKernel", "k"]
        ),
        "pid": odd_number,
        "tid": odd_number,
        "ts": st.floats(-1e3, 1e3) | odd_number,
        "dur": st.floats(-10, 1e3) | odd_number,
        "args": st.dictionaries(
            st.sampled_from(
                ["correlation", "stream", "device", "Collective name", "Process Group Name", "Process Group Ranks"]
            ),
            odd_number | st.integers(0, 3) | st.lists(st.integers(), max_size=2),
        ),
    },
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(odd_event, min_size=1, max_size=25),
    st.dictionaries(st.sampled_from(["distributedInfo", "deviceProperties", "baseTimeNanoseconds"]), value),
)
def test_odd_values_end_in_an_answer_or_a_refusal(tmp_path, events, others):
    path = write(tmp_path / "trace.json", {"traceEvents": events, **others})
    try:
        diagnosis = diagnose_traces([path, path])
    except InputError:
        return
    json.dumps(diagnosis.to_dict(), allow_nan=False)
    assert not [check for check in diagnosis.checks if "failed" in check.reason]


def test_old_categories_and_thread_numbers_as_text(tmp_path):
    made = training(steps=4, loading=500)
    old = {
        "kernel": "Kernel",
        "cuda_runtime": "Runtime",
        "cpu_op": "Operator",
        "user_annotation": "Operator",
        "gpu_memcpy": "Memcpy",
    }
    new = read_trace(made.write(tmp_path / "new.json"))
    for number, one in enumerate(made.events):
        one["cat"] = old[one["cat"]]
        one["tid"] = str(one["tid"]) if number % 2 else one["tid"]
    before = read_trace(made.write(tmp_path / "old.json"))
    assert len(before.threads) == len(new.threads)
    assert len(before.device) == len(new.device)
    for activity in (Activity.INPUT, Activity.STEP, Activity.RUNTIME, Activity.OPTIMIZER):
        assert len(before.host[activity]) == len(new.host[activity])


def test_unknown_category_with_a_stream_is_device_work(tmp_path):
    made = training(steps=2, kernels=10)
    for one in made.events:
        if one["cat"] == "kernel":
            one["cat"] = "new_accelerator"
    assert len(read_trace(made.write(tmp_path / "trace.json")).device) == 2 * 11


def test_negative_durations_count_as_none_and_are_said(tmp_path):
    made = training(steps=2)
    made.span("kernel", "k", 5.0, -100.0, pid=0, tid=7, stream=7)
    trace = read_trace(made.write(tmp_path / "trace.json"))
    assert (trace.device["end"] >= trace.device["start"]).all()
    assert any("negative duration" in note for note in trace.notes)


def test_what_is_a_trace(tmp_path):
    made = training(steps=1)
    assert is_trace(made.write(tmp_path / "a.json"))
    assert is_trace(made.write(tmp_path / "b.json.gz"))
    assert is_trace(write(tmp_path / "c.json", made.events))
    assert is_trace(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "state.json").write_text('{"log_history": []}')
    assert not is_trace(tmp_path / "run")
    assert not is_trace(tmp_path / "run" / "state.json")
    assert not is_trace(tmp_path / "none")
