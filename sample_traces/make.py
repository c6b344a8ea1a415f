"""Record the sample runs again: `python sample_traces/make.py` from the root of the repository, in its environment.

Each script in sample_traces/scripts trains for a few seconds and leaves its run beside the folder, without the report.
What is the user's of the machine that recorded it (host name, paths) is replaced, so that the samples are the same
wherever they are made.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    for script in sorted((HERE / "scripts").glob("*.py")):
        run = HERE / script.stem.replace("_", "-")
        shutil.rmtree(run, ignore_errors=True)
        command = [sys.executable, "-m", "tracelyze", "collect", "--quiet", "--out", str(run), "--"]
        command += ["python", str(script.relative_to(HERE.parent))]
        subprocess.run(command, cwd=HERE.parent, check=True)
        for folder in run.glob("rank*"):
            make_neutral(folder / "process.json")
            (folder / "signals.txt").unlink(missing_ok=True)
            (folder / "stopped.txt").unlink(missing_ok=True)
            folder.rename(run / "rank00000-attempt0-pid1")
        make_neutral(run / "run.json")
        print(run.name, sum(path.stat().st_size for path in run.rglob("*") if path.is_file()), "bytes")


def make_neutral(path: Path) -> None:
    facts = json.loads(path.read_text(encoding="utf-8"))
    neutral = {"host": "sample", "cwd": ".", "pid": 1, "platform": "Linux"}
    facts.update({key: value for key, value in neutral.items() if key in facts})
    facts.update({key: None for key in ("pid_start", "boot_id") if key in facts})
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
