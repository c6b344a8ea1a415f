"""`tracelyze import kineto`: what is said about a trace is said about its import."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fork_server import client
from tests.kineto.made import Made, training, write
from tests.kineto.test_reader import odd_event, value
from tests.kineto.test_real_traces import FOLDER
from tracelyze import schema
from tracelyze.analyzers.kineto import diagnose_traces, is_trace
from tracelyze.analyzers.kineto.reading.blocks import Blocks
from tracelyze.analyzers.kineto.reading.detail import look_again
from tracelyze.analyzers.kineto.reading.importer import import_traces
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.errors import InputError


def said(*paths: Path) -> dict[str, Any]:
    """The diagnosis without the path, and without the command line's version."""
    data = diagnose_traces(list(paths)).to_dict()
    del data["run"]["path"]
    return data


def odd() -> Made:
    """Processes, threads and streams that are text, names in several scripts, a stack, a communication kernel."""
    made = training(steps=5, loading=9000, communicating=4000, waiting=True)
    for number, event in enumerate(made.events):
        if number % 3 == 0 and event["cat"] != "user_annotation":
            event["name"] += " ünï\u2028"
        if event["cat"] == "cpu_op":
            event["pid"], event["tid"] = "python 1", "22"
            event["args"] = {"Call stack": "train.py(12): main", "Sequence number": number, "Fwd thread id": number % 2}
        if event["name"].startswith("nccl"):
            event["args"] |= {"Collective name": "allreduce", "Process Group Name": "3", "Process Group Ranks": [0, 1]}
    return made


JOBS: dict[str, list[Made]] = {
    "healthy": [training()],
    "waits for data": [training(steps=6, loading=20_000)],
    "no marks": [training(steps=8, marks=False, allocating=3000)],
    "nothing on the device": [Made()],
    "odd": [odd()],
    "two ranks, two windows": [
        training(rank=rank, world_size=2, base=base, communicating=3000 if rank else 9000, slow={2: 50_000})
        for base in (1e6, 9e6)
        for rank in (0, 1)
    ],
}
JOBS["nothing on the device"][0].host("aten::mm", 100)


@pytest.mark.parametrize("job", JOBS)
def test_an_import_gives_the_same_diagnosis(tmp_path, job):
    folder = tmp_path / "traces"
    folder.mkdir()
    for number, made in enumerate(JOBS[job]):
        made.write(folder / f"window{number}.json{'.gz' * (number % 2)}")
    before = said(folder)
    import_traces([folder], tmp_path / "run")
    shutil.rmtree(folder)
    assert is_trace(tmp_path / "run")
    assert said(tmp_path / "run") == before


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(odd_event, min_size=1, max_size=25),
    st.dictionaries(st.sampled_from(["distributedInfo", "deviceProperties", "baseTimeNanoseconds"]), value),
)
def test_odd_traces_are_imported_as_they_are_read(tmp_path, events, others):
    file = write(tmp_path / "trace.json", {"traceEvents": events, **others})
    shutil.rmtree(tmp_path / "run", ignore_errors=True)
    outcomes = []
    for tell in (lambda: said(file), lambda: import_traces([file], tmp_path / "run") and said(tmp_path / "run")):
        try:
            outcomes.append(json.dumps(tell()))
        except InputError as refused:
            outcomes.append(str(refused))
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no real traces in {FOLDER}; set TRACELYZE_TRACES")
@pytest.mark.parametrize(
    "name",
    ["param_dlrm", "kineto_resnet50", "hta/ns_resolution_trace", "hta/amd_trace", "hta/cpu_only", "tracelens"],
)
def test_imports_of_real_traces_give_the_same_diagnosis(tmp_path, name):
    import_traces([FOLDER / name], tmp_path / "run")
    assert said(tmp_path / "run") == said(FOLDER / name)


def test_a_closer_look_sees_the_same_ranges(tmp_path):
    file = odd().write(tmp_path / "trace.json.gz")
    import_traces([file], tmp_path / "run")
    blocks = Blocks()
    trace, stored = read_trace(file, blocks), read_trace(tmp_path / "run" / "trace-00000")
    begin, end = float(trace.device["start"].min()), float(trace.device["start"].max())
    windows = [(begin, begin + (end - begin) / 4), (end - 1000, end)]
    raw = look_again(file, blocks, windows, trace.threads)
    found = look_again(stored.path, Blocks(), windows, stored.threads)
    assert 0 < len(raw.start) < len(JOBS["odd"][0].events)
    assert (raw.stack >= 0).any()
    for name, values in vars(raw).items():
        assert np.array_equal(values, getattr(found, name)), name


def test_the_manifest_says_where_it_came_from_and_what_is_missing(tmp_path):
    for rank in (0, 1):
        for window, base in enumerate((2e6, 8e6)):
            training(steps=2, rank=rank, world_size=2, base=base).write(tmp_path / f"{1 - window}-of-rank{rank}.json")
    cut = tmp_path / "0-of-rank1.json"
    cut.write_bytes(cut.read_bytes()[:20_000])
    write(tmp_path / "2.json", {"schemaVersion": 1, "traceEvents": []})
    sentences = import_traces([tmp_path], tmp_path / "run")
    source = json.loads((tmp_path / "run" / schema.RUN_FILE).read_text())["source"]
    told = [(Path(one["file"]).name, one["rank"], one["window"], one["truncated"]) for one in source["traces"]]
    assert told == [
        ("0-of-rank0.json", 0, 1, False),
        ("0-of-rank1.json", 1, 1, True),
        ("1-of-rank0.json", 0, 0, False),
        ("1-of-rank1.json", 1, 0, False),
    ]
    assert [reason for reason in source["left_out"] if "2.json" in reason and "no events" in reason]
    assert sentences.startswith("imported 4 traces of 2 ranks in 2 windows: ")
    assert "0-of-rank1.json: The trace is incomplete" in sentences
    assert "Left out: " in sentences
    assert said(tmp_path / "run") == said(tmp_path)


def test_what_cannot_be_imported_leaves_nothing_behind(tmp_path):
    trace = training(steps=2).write(tmp_path / "trace.json")
    (tmp_path / "empty.json").touch()
    with pytest.raises(InputError, match="empty"):
        import_traces([tmp_path / "empty.json"], tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="not empty"):
        import_traces([trace], tmp_path)
    with pytest.raises(InputError, match=r"cannot be|Not a directory|File exists"):
        import_traces([trace], trace / "run")


def test_damaged_imports_are_refused_in_one_line(tmp_path):
    import_traces([training(steps=3).write(tmp_path / "trace.json")], tmp_path / "run")
    folder = tmp_path / "run" / "trace-00000"
    facts = (folder / schema.TRACE_FILE).read_text()
    for file in sorted(folder.iterdir()):
        if file.name in ("ranges.parquet", "said.parquet"):
            continue
        whole = file.read_bytes()
        for broken in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
            file.write_bytes(broken)
            with pytest.raises(InputError, match="import it again") as refused:
                diagnose_traces(tmp_path / "run")
            assert "\n" not in str(refused.value)
        file.write_bytes(whole)
    (folder / schema.TRACE_FILE).write_text(facts.replace('"schema_version": 1', '"schema_version": 99'))
    with pytest.raises(InputError, match="upgrade"):
        diagnose_traces(tmp_path / "run")


@pytest.mark.starts_programs
def test_the_command(tmp_path):
    training(steps=6, loading=20_000).write(tmp_path / "trace.json")

    def tracelyze(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tracelyze", *arguments]
        return client.shared(client.COMMANDS).run(command, os.environ, cwd=tmp_path)

    done = tracelyze("import", "kineto", "trace.json", "run")
    assert (done.returncode, done.stdout) == (0, "")
    assert "imported 1 trace of 1 rank" in done.stderr
    assert "next: tracelyze diagnose run" in done.stderr
    raw, imported = (json.loads(tracelyze("diagnose", path, "-f", "json").stdout) for path in ("trace.json", "run"))
    assert (raw["run"].pop("path"), imported["run"].pop("path")) == ("trace.json", "run")
    assert raw == imported
    assert raw["findings"][0]["rule"] == "dataloader-bottleneck"
    assert tracelyze("diagnose", "run").stdout.endswith("Report: run/diagnosis.html\n")


def test_an_import_keeps_what_events_say_of_themselves(tmp_path):
    made = training(steps=3, kernels=4, copying=300)
    for event in made.events:
        arguments = event.setdefault("args", {})
        if event["cat"] == "kernel":
            arguments |= {"grid": [8, 2, 1], "block": [128, 1, 1]}
        elif event["cat"] == "cpu_op":
            arguments |= {"Input Dims": [[32, 3], [64]]}
    file = made.write(tmp_path / "trace.json")
    import_traces([file], tmp_path / "run")
    pictures = [diagnose_traces([path], picture=True).picture for path in (file, tmp_path / "run")]
    details = [[one.details for one in picture.timelines] for picture in pictures if picture is not None]
    assert details[0] == details[1]
    assert {"grid 8 \u00d7 2 \u00d7 1, block 128 \u00d7 1 \u00d7 1", "inputs [32 \u00d7 3], [64]"} <= set(details[1][0])
    (tmp_path / "run" / "trace-00000" / "said.parquet").unlink()  # as in an import that an earlier version made
    assert diagnose_traces([tmp_path / "run"], picture=True).picture is not None
