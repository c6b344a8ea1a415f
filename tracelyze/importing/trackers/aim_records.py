"""Prints the metrics of a run of Aim as JSON lines: name, step, value, seconds. A program: see own_process.

It is given a copy of the repository: Aim's reader opens runs for writing where its index has not seen them yet.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import aim


def main(path: str) -> None:
    """First how many runs there are and which one is read: the one that began last."""
    repository = aim.Repo(path)
    hashes = repository.list_all_runs()
    begun = {name: aim.Run(name, repo=repository, read_only=True).created_at for name in hashes}
    last = max(hashes, key=lambda name: (begun[name], name))
    print(json.dumps({"runs": len(hashes), "run": last}))  # noqa: T201
    run = aim.Run(
        last, repo=repository, system_tracking_interval=None, log_system_params=False, capture_terminal_logs=False
    )
    for name, context, _ in run.iter_metrics_info():
        if name.startswith("__system__"):
            continue
        where = context.to_dict()
        words = [str(where[key]) for key in sorted(where, key=lambda key: (key != "subset", key))]
        metric = run.get_metric(name, context)
        steps, (values, _, times) = metric.data.items_list()
        for step, value, time in zip(steps, values, times, strict=True):
            print(json.dumps(["/".join([*words, name]), step, value, time]))  # noqa: T201


if __name__ == "__main__":
    main(str(Path(sys.argv[1])))
