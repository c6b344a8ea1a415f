"""A plain loop with Accelerate: accumulation of 2, clipping, a validation every epoch.

Arguments: `bf16`; `no-zero-grad`; `train-mode` (validation without eval()).
"""

import sys

import told
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

told.seed()
x, y = told.samples()
accelerator = Accelerator(
    cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16" if "bf16" in sys.argv else "no"
)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
train = DataLoader(TensorDataset(x[:128], y[:128]), batch_size=8, shuffle=True)
valid = DataLoader(TensorDataset(x[128:], y[128:]), batch_size=16)
model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
criterion = nn.CrossEntropyLoss()
losses, evals = [], []
for _ in range(6):
    model.train()
    window = []
    for inputs, targets in train:
        with accelerator.accumulate(model):
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            window.append(loss.item())
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                losses.append(sum(window) / len(window))
                window = []
            optimizer.step()
            if "no-zero-grad" not in sys.argv:
                optimizer.zero_grad()
    if "train-mode" not in sys.argv:
        model.eval()
    with torch.no_grad():
        seen = [criterion(model(inputs), targets).item() for inputs, targets in valid]
    evals.append(sum(seen) / len(seen))
told.tell(accelerator.unwrap_model(model), steps=len(losses), losses=losses, evals=evals)
