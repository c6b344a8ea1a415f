"""The commit that a program is started from, and whether its tree was clean; nothing in the repository changes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tracelyze.analyzers import diagnose
from tracelyze.collectors.launching import revision
from tracelyze.collectors.launching.launch import manifest
from tracelyze.collectors.system import identity

pytestmark = [
    pytest.mark.starts_programs,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]


def git(folder: Path, *arguments: str) -> str:
    identity_of = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity_of, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_commit_and_clean_tree(tmp_path: Path) -> None:
    assert revision.revision(tmp_path) is None
    git(tmp_path, "init")
    assert revision.revision(tmp_path) is None, "no commit yet"
    (tmp_path / "train.py").write_text("x = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("not tracked")
    assert revision.revision(tmp_path / "runs") == {"commit": commit, "clean": True}
    assert revision.revision(tmp_path, "train.py") == {"commit": commit, "clean": True}
    (tmp_path / "new.py").write_text("x = 3\n")
    assert revision.revision(tmp_path, "new.py") == {"commit": commit, "clean": False}, "the commit does not hold it"
    assert revision.revision(tmp_path, str(tmp_path.parent / "elsewhere.py")) == {"commit": commit, "clean": False}
    (tmp_path / "train.py").write_text("x = 2\n")
    assert revision.revision(tmp_path) == {"commit": commit, "clean": False}


def test_a_git_that_hangs_or_is_missing_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(revision, "PATIENCE", 0.2)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert revision.revision(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert revision.revision(tmp_path) is None


def test_the_diagnosis_names_the_commit(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    git_facts = {"git": {"commit": "0123abc", "clean": False}}
    identity.write_json(run / "run.json", manifest(["python", "train.py"]) | git_facts)
    facts = diagnose(run).run
    assert (facts.commit, facts.clean) == ("0123abc", False)
    identity.write_json(run / "run.json", manifest(["python", "train.py"]) | {"git": [1]})
    assert (diagnose(run).run.commit, diagnose(run).run.clean) == ("", None)
