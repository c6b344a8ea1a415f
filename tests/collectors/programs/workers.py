"""Loads batches in workers that call modules, before and while it trains; prints what a worker is like.

Workers are started by each method in turn, and at last a process that is no worker is spawned, and trains.
`workers.py before`: only the workers before it trains.
"""

import os
import subprocess
import sys

import torch
import torch.multiprocessing
from torch import nn
from torch.utils.data import DataLoader, Dataset

METHODS = ("fork", "spawn", "forkserver")
FACTS = ("hooks", "pyarrow", "files", "threads", "recorded", "handed on")


class Transformed(Dataset):
    def __init__(self):
        self.transform = nn.Sequential(nn.Linear(3, 3), nn.ReLU())

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with torch.no_grad():
            self.transform(torch.ones(3))
        hooks = sys.modules.get("tracelyze.collectors.hooks.process_recorders")
        child = [sys.executable, "-S", "-c", "import os; print(os.environ.get('TRACELYZE_SPAWNED_WORKER', '0'))"]
        return {
            "hooks": hooks is not None,
            "pyarrow": "pyarrow" in sys.modules,
            "files": sum("rank0" in os.readlink(f"/proc/self/fd/{one}") for one in open_files()),
            "threads": len(os.listdir("/proc/self/task")),
            "recorded": hooks.recorder().progress.forwards if hooks is not None else 0,
            "handed on": int(subprocess.check_output(child, text=True)),
        }


def open_files():
    return [one for one in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{one}")]


model = nn.Linear(3, 1)


def train(_rank=0):
    for _ in range(5):  # by hand: the first optimizer of a process imports torch._dynamo, which takes seconds
        model(torch.ones(2, 3)).sum().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None


def facts(method):
    loader = DataLoader(Transformed(), batch_size=None, num_workers=1, multiprocessing_context=method)
    batches = list(loader)
    assert len(batches) == 8
    return {name: int(max(batch[name] for batch in batches)) for name in FACTS}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print({method: facts(method) for method in METHODS})
    if sys.argv[1:] == ["before"]:
        sys.exit()
    train()
    print({method: facts(method) for method in METHODS})
    print(os.environ.get("TRACELYZE_SPAWNED_WORKER", "0"))
    torch.multiprocessing.spawn(train, nprocs=1)
