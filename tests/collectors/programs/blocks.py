"""`tracelyze.Recorder` in a script of its own. First argument: what happens; second: where run directories go."""

import json
import sys
import threading
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import tracelyze

what, place = sys.argv[1], Path(sys.argv[2])


def train(steps, scale=1.0):
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        x = torch.randn(8, 4)
        loss = F.cross_entropy(model(x), (x[:, 0] > 0).long()) * scale
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.weight.sum().item()


if what == "around":
    before = train(10)
    with tracelyze.Recorder(place / "run") as recorder:
        during = train(20)
    after = train(10)
    print(json.dumps([str(recorder.run), before == after]))
elif what == "raises":
    try:
        with tracelyze.Recorder(place / "run"):
            train(5)
            raise ValueError("the block has failed")
    except ValueError as error:
        frames = []
        trace = error.__traceback__
        while trace is not None:
            frames.append(Path(trace.tb_frame.f_code.co_filename).name)
            trace = trace.tb_next
        print(json.dumps(frames))
elif what == "twice":
    shown = []
    for steps in (5, 7):
        with tracelyze.Recorder(place / "run", quiet=True) as recorder:
            train(steps)
        shown.append(str(recorder.run))
    with recorder:  # the same object once more
        train(9)
    print(json.dumps([*shown, str(recorder.run)]))
elif what == "nested":
    with tracelyze.Recorder(place / "outer") as outer:
        train(3)
        with tracelyze.Recorder(place / "inner") as inner:
            train(4)
        with outer:
            train(5)
        train(6)
    print(json.dumps([str(outer.run), str(inner.run)]))
elif what == "thread":
    with tracelyze.Recorder(place / "run"):
        worker = threading.Thread(target=train, args=(12,))
        worker.start()
        worker.join()
elif what == "never-ended":
    tracelyze.Recorder(place / "run").__enter__()
    train(8)
elif what == "nothing":
    with tracelyze.Recorder(place / "run"):
        pass
elif what == "log":
    tracelyze.log(loss=1.0)
    with tracelyze.Recorder(place / "run"):
        tracelyze.log(loss=2.0)
    tracelyze.log(loss=3.0)
