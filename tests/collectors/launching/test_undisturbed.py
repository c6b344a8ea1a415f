"""What a program does with its own process goes on as if nobody recorded: descriptors, signals, children, exec."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, program, run_plain
from tracelyze import analyzers

PROGRAM = program("undisturbed.py")


def test_files_of_the_program_get_none_of_our_rows(collect: Collect, tmp_path: Path) -> None:
    done = collect(sys.executable, PROGRAM, "closes_all_descriptors", str(tmp_path))
    assert done.process.returncode == 0, done.process.stderr
    assert done.process.stdout == "bytes 0\n"
    (process,) = done.run.processes
    assert len(process.steps) >= 30  # what was written before the descriptors were closed
    assert "closed the descriptor" in done.process.stderr


def test_a_signal_that_the_program_waits_for_is_its_own(collect: Collect) -> None:
    done = collect(sys.executable, PROGRAM, "waits_for_a_signal")
    assert (done.process.returncode, done.process.stdout) == (0, "got SIGTERM\n")


def test_nothing_is_started_in_the_program(collect: Collect) -> None:
    assert collect(sys.executable, PROGRAM, "counts_children").process.stdout == "children 0\n"


def test_an_exception_that_is_only_logged_ends_nothing(collect: Collect) -> None:
    done = collect(sys.executable, PROGRAM, "logs_an_exception")
    assert (done.process.returncode, done.process.stdout) == (0, "went on\n")
    assert done.own_stderr == run_plain(sys.executable, PROGRAM, "logs_an_exception").stderr
    (process,) = done.run.processes
    assert process.exit.kind == "finished"


def test_both_programs_of_one_process_are_recorded(collect: Collect) -> None:
    done = collect(sys.executable, PROGRAM, "becomes_another_program", "first")
    assert done.process.stdout == "the second one\n"
    assert [len(process.steps) for process in done.run.processes] == [30, 30]
    assert {process.exit.kind for process in done.run.processes} == {"finished"}


def test_a_program_that_could_not_be_started_changes_nothing(collect: Collect) -> None:
    done = collect(sys.executable, PROGRAM, "fails_to_become_one")
    assert done.process.stdout == "frames None\n"
    (process,) = done.run.processes
    assert len(process.steps) == 60
    assert process.exit.kind == "finished"


def test_warnings_keep_their_lines(collect: Collect) -> None:
    plain = run_plain(sys.executable, PROGRAM, "is_warned").stderr
    assert plain.count("undisturbed.py") >= 5
    assert collect(sys.executable, PROGRAM, "is_warned").own_stderr == plain


def test_what_we_compute_is_seen_by_no_torch_function(collect: Collect) -> None:
    plain = run_plain(sys.executable, PROGRAM, "counts_functions").stdout
    assert "cross_entropy" in plain
    assert collect(sys.executable, PROGRAM, "counts_functions").process.stdout == plain


def test_functions_that_we_stand_in_front_of_can_be_pickled(collect: Collect) -> None:
    done = collect(sys.executable, PROGRAM, "pickles_functions")
    assert done.process.stdout == "pickled\n", done.process.stderr


def test_a_script_whose_name_is_not_utf8_is_recorded(collect_started: Collect, tmp_path: Path) -> None:
    script = os.fsencode(tmp_path) + b"/caf\xe9.py"
    shutil.copy(PROGRAM, os.fsdecode(script))
    done = collect_started(sys.executable, os.fsdecode(script), "waits_for_a_signal")
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    assert len(process.steps) == 30


def test_a_file_of_the_program_that_is_called_pyarrow_is_not_run(collect_started: Collect, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("print('pyarrow of the program')\n")
    shutil.copy(PROGRAM, tmp_path / "script.py")
    done = collect_started(sys.executable, str(tmp_path / "script.py"), "waits_for_a_signal")
    assert (done.process.returncode, done.process.stdout) == (0, "got SIGTERM\n")
    assert "rename that file" in done.process.stderr
    assert any("rename that file" in note for note in analyzers.diagnose(done.folder).run.notes)


@pytest.mark.parametrize(
    "part",
    [
        "counts_operations",
        "passes_iterators",
        "compares_nothing",
        "saves_odd_objects",
        "joins_all_threads",
        "clips_iterators",
        "trains_fake_tensors",
        "stops_the_clock",
        "loses_its_reader",
        "asks_functions_what_they_are",
        "has_a_reader_that_does_not_read",
        "computes_its_weights",
        "describes_all_functions",
        "saves_scripts",
    ],
)
def test_nothing_of_the_programs_is_used_up_compared_or_asked(part: str, collect: Collect, tmp_path: Path) -> None:
    plain = run_plain(sys.executable, PROGRAM, part, str(tmp_path))
    assert plain.returncode == 0, plain.stderr
    done = collect(sys.executable, PROGRAM, part, str(tmp_path))
    assert (done.process.returncode, done.process.stdout) == (0, plain.stdout), done.process.stderr
    assert done.own_stderr == plain.stderr
    (process,) = done.run.processes
    assert [row["text"] for row in process.events.records() if row["kind"] == "collector-error"] == []
