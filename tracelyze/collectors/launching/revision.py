"""The git commit that a program is started from, for run.json. Asked by the launcher, before it becomes the program."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

PATIENCE = 2.0
"""Seconds after which a slow repository is left alone: the training does not wait for it."""


def revision(folder: Path, script: str | None = None) -> dict[str, Any] | None:
    """Commit of the working tree that `folder` is in, and whether it holds what runs (`clean`, None if unknown).

    It does if its tracked files are unchanged and the script, a path as seen from `folder`, is one of them. None where
    there is no repository, no git, or no commit yet.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or not commit.strip():
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    clean = None if changes is None else not changes.strip()
    if clean and script is not None:
        clean = _git(folder, "ls-files", "--error-unmatch", "--", script) is not None
    return {"commit": commit.strip(), "clean": clean}


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks git leaves its index as it is, so that nothing of the user's repository changes.
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - fixed words, and no shell
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None
