"""Runs made in memory, for the tests of rules: columns by name, None where nothing was measured.

    from tracelyze.testing import Workshop

    make = Workshop()
    process = make.process(steps={**make.steps(), "loss": [0.7] * 400})
    status, reason, finding = make.check("loss-plateau", process)

`Workshop.check` also takes a rule that is not in the catalogue. Columns are those of docs/run-directory.md; without
any, the process is a healthy training of 400 steps with four validation passes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tracelyze import schema
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded.run import Process, Run
from tracelyze.analyzers.recorded.table import MemoryColumns, Table
from tracelyze.analyzers.rule import Rule
from tracelyze.diagnosis import Exit, Finding

Columns = dict[str, Any]
SITES = [
    {"site": 1, "role": "backward", "file": "train.py", "line": 41, "function": "main", "source": "loss.backward()"},
    {"site": 2, "role": "loader", "file": "train.py", "line": 30, "function": "main", "source": "for x, y in loader:"},
    {"site": 3, "role": "forward", "file": "train.py", "line": 60, "function": "main", "source": "out = model(x)"},
    {"site": 4, "role": "zero_grad", "file": "train.py", "line": 40, "function": "main", "source": "opt.zero_grad()"},
]


def healthy_steps(count: int = 400, seed: int = 0) -> Columns:
    """Columns of an uneventful training: a falling loss, a stationary norm, flat memory, little waiting."""
    random = np.random.default_rng(seed)
    step = np.arange(1, count + 1)
    return {
        "optimizer": [0] * count,
        "step": step.tolist(),
        "time": (0.05 * step).tolist(),
        "seconds": [None, *random.normal(0.05, 0.002, count - 1).tolist()],
        "loss": (0.3 + 2 * np.exp(-step / (count / 4)) + random.normal(0, 0.05, count)).tolist(),
        "backwards": [1] * count,
        "grad_norm": np.exp(random.normal(0, 0.3, count)).tolist(),
        "parameters": [8] * count,
        "grads_none": [0] * count,
        "grads_zero": [0] * count,
        "grads_nonfinite": [0] * count,
        "grads_carried": [0] * count,
        "grads_cleared": [0] * count,
        "lr": [0.01] * count,
        "batch_size": [32] * count,
        "model_in_train": [True] * count,
        "modules_sensitive": [3] * count,
        "modules_in_train": [3] * count,
        "loader": [0] * count,
        "loader_wait": [0.001] * count,
        "loader_batches": [1] * count,
        "loader_first": [index % 100 == 0 for index in range(count)],
        "host_rss": (500e6 + random.normal(0, 2e5, count)).astype(int).tolist(),
        "live_graphs": [1] * count,
        "overhead": [0.0004] * count,
        "autocast": [0] * count,
    }


def healthy_evals(count: int = 4, every: int = 100) -> Columns:
    """Validation passes in eval mode without autograd, on a loader of their own, after every `every` steps."""
    after = [every * (index + 1) for index in range(count)]
    return {
        "time_start": [0.05 * step for step in after],
        "time_end": [0.05 * step + 0.01 for step in after],
        "after_step": after,
        "model": [0] * count,
        "trained": [True] * count,
        "forwards": [10] * count,
        "samples": [1000] * count,
        "grad_mode": [0] * count,
        "model_in_train": [False] * count,
        "modules_sensitive": [3] * count,
        "modules_in_train": [0] * count,
        "dropouts": [0] * count,
        "repeats": [0] * count,
        "losses": [10] * count,
        "loss": [0.4 + 2 * float(np.exp(-step / 100)) for step in after],
        "loader": [1] * count,
        "site": [3] * count,
    }


def rows_of(rows: list[dict[str, Any]]) -> Columns:
    """Rows as columns."""
    return {name: [row.get(name) for row in rows] for name in {key: None for row in rows for key in row}}


class Workshop:
    """Makes processes and runs."""

    steps = staticmethod(healthy_steps)
    evals = staticmethod(healthy_evals)
    rows = staticmethod(rows_of)

    def process(
        self,
        steps: Columns | None = None,
        *,
        evals: Columns | None = None,
        optimizers: list[dict[str, Any]] | None = None,
        loaders: list[dict[str, Any]] | None = None,
        events: list[dict[str, Any]] | None = None,
        samples: Columns | None = None,
        models: list[dict[str, Any]] | None = None,
        sites: list[dict[str, Any]] | None = None,
        windows: list[dict[str, Any]] | None = None,
        facts: dict[str, Any] | None = None,
        end: Exit | None = None,
        more: dict[str, list[dict[str, Any]]] | None = None,
    ) -> Process:
        """A process with these columns; without any it is a healthy training on the CPU."""
        one = {"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float32", "parameters": 8}
        two = [
            {"loader": 0, "dataset": "Images", "iterable": False, "length": 100, "batch_size": 32, "num_workers": 0},
            {"loader": 1, "dataset": "Images", "iterable": False, "length": 10, "batch_size": 100, "num_workers": 0},
        ]
        given: dict[str, Columns] = {
            "steps": healthy_steps() if steps is None else steps,
            "evals": healthy_evals() if evals is None else evals,
            "optimizers": rows_of([one] if optimizers is None else optimizers),
            "loaders": rows_of(two if loaders is None else loaders),
            "events": rows_of(events or []),
            "samples": samples or {},
            "models": rows_of(models or [{"model": 0, "name": "Net", "sensitive": "Dropout x2, BatchNorm1d"}]),
            "sites": rows_of(SITES if sites is None else sites),
            "windows": rows_of(windows or []),
        }
        given |= {name: rows_of(rows) for name, rows in (more or {}).items()}
        tables = {spec.name: Table(spec, MemoryColumns(spec, given.get(spec.name, {}))) for spec in schema.TABLES}
        return Process("rank00000", {"rank": 0, "cpus": 8, **(facts or {})}, tables, end or Exit("finished", 0))

    def check(self, rule: str | Rule, *processes: Process) -> tuple[str, str, Finding | None]:
        """Status (fired, passed, skipped) and reason of one rule on a run of these processes, and its first finding.

        What the rule raises is raised.
        """
        chosen: dict[str, Any] = {"select": [rule]} if isinstance(rule, str) else {"rules": [rule]}
        diagnosis = diagnose(self.run(*processes), **chosen, strict=True)
        finding = diagnosis.findings[0] if diagnosis.findings else None
        return diagnosis.checks[0].status, diagnosis.checks[0].reason, finding

    def run(self, *processes: Process) -> Run:
        """A run of these processes."""
        return Run(Path("run"), {}, list(processes))
