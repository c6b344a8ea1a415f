"""Plain loops with what torch offers for speed. First argument: `compile` (the model, with the eager backend),
`compile-step` (the optimizer's step), `fused`, `foreach`, `single`, `capturable`.

Further arguments: `fp16` (autocast without a scaler), `nan`, `train-mode` (validation without eval()).
"""

import sys

import told
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

told.seed()
kind = sys.argv[1]
x, y = told.samples()
model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
settings = {"fused": {"fused": True}, "foreach": {"foreach": True}, "single": {"foreach": False, "fused": False}}
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **settings.get(kind, {}))
if kind == "compile":
    called = torch.compile(model, backend="aot_eager")
else:
    called = model
step = torch.compile(optimizer.step, backend="eager") if kind == "compile-step" else optimizer.step
train = DataLoader(TensorDataset(x[:128], y[:128]), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x[128:], y[128:]), batch_size=16)
losses, evals = [], []
for _ in range(8):
    called.train()
    for inputs, targets in train:
        with torch.autocast("cpu", torch.float16, enabled="fp16" in sys.argv):
            loss = F.cross_entropy(called(inputs), targets)
        if "nan" in sys.argv and len(losses) == 40:
            loss = loss + torch.log(targets.sum() * 0.0 - 1.0)
        optimizer.zero_grad()
        loss.backward()
        step()
        losses.append(loss.item())
    if "train-mode" not in sys.argv:
        called.eval()
    with torch.inference_mode():
        seen = [F.cross_entropy(called(inputs), targets).item() for inputs, targets in valid]
    evals.append(sum(seen) / len(seen))
told.tell(model, steps=len(losses), losses=losses, evals=evals)
