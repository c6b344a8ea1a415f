"""The event of an exception that ended a run."""

from __future__ import annotations


def exception(name: str, text: str, step: int = 7) -> list[dict[str, object]]:
    return [{"kind": "exception", "name": name, "text": text, "step": step, "time": 1.0, "file": "train.py", "line": 9,
             "source": "loss.backward()"}]  # fmt: skip
