"""A training that is recorded with a torch which lacks one name, or is not recorded: lacking.py [RUN NAME]."""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Without:
    """torch as the collector would find it if the name at this path were gone."""

    def __init__(self, whole, path):
        vars(self).update(whole=whole, path=path)

    def __getattr__(self, name):
        if name != self.path[0]:
            return getattr(self.whole, name)
        if len(self.path) == 1:
            raise AttributeError(f"module has no attribute {name}")
        return Without(getattr(self.whole, name), self.path[1:])

    def __setattr__(self, name, value):
        setattr(self.whole, name, value)


name = ""
if len(sys.argv) > 1:
    from tracelyze.collectors.hooks import install
    from tracelyze.collectors.options import CollectOptions

    name = sys.argv[2]
    install.begin(Without(torch, name.split(".")), Path(sys.argv[1]), CollectOptions(signals_on=("profiler_windows",)))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(96, 8), torch.randint(0, 3, (96,)))
for _ in range(2):
    for x, y in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
print(loss.item(), sum(p.double().sum().item() for p in model.parameters()))

if name in ("", "_C._dynamo.eval_frame"):

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.compile(step, backend="eager")
    for x, y in DataLoader(data, batch_size=8):
        loss = compiled(x, y)
    print(loss.item())
