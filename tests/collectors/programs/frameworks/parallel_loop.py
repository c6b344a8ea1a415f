"""DDP or FSDP2 on gloo ranks: `torchrun --nproc-per-node 2 parallel_loop.py ddp|fsdp`, with accumulation of 2.

Arguments: `no-zero-grad`; `unclipped` (it tells norms over all ranks then); `train-mode` (validation without eval()).
"""

import sys
import time

import told
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

told.seed()
dist.init_process_group("gloo")
rank = dist.get_rank()
x, y = told.samples()
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
sharded = "fsdp" in sys.argv
if sharded:
    for layer in (model[0], model[3]):
        fully_shard(layer)
    fully_shard(model)
else:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(x[:128], y[:128])
sampler = DistributedSampler(data, seed=3)
train = DataLoader(data, batch_size=8, sampler=sampler)
valid = DataLoader(TensorDataset(x[128:], y[128:]), batch_size=16)
criterion = nn.CrossEntropyLoss()
losses, evals, norms = [], [], []


def whole_of(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


for epoch in range(6):
    model.train()
    sampler.set_epoch(epoch)
    window = []
    for number, (inputs, targets) in enumerate(train, 1):
        last = number % 2 == 0
        if sharded:
            model.set_requires_gradient_sync(last)
        else:
            model.require_backward_grad_sync = last
        loss = criterion(model(inputs), targets)
        (loss / 2).backward()
        window.append(loss.item())
        if last:
            if "unclipped" in sys.argv:
                norms.append(sum(whole_of(p.grad).norm().item() ** 2 for p in model.parameters()) ** 0.5)
            else:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if "no-zero-grad" not in sys.argv:
                optimizer.zero_grad()
            losses.append(sum(window) / 2)
            window = []
    if "train-mode" not in sys.argv:
        model.eval()
    with torch.no_grad():
        seen = [criterion(model(inputs), targets).item() for inputs, targets in valid]
    evals.append(sum(seen) / len(seen))
whole = nn.Linear(1, 1)
whole.state_dict = lambda: {name: whole_of(tensor) for name, tensor in model.state_dict().items()}
told.tell(whole, rank=rank, steps=len(losses), losses=losses, evals=evals, norms=norms)
time.sleep(0.5)  # for Gloo's threads, which may still hold tensors: without it 4 plain runs of 40 end by an abort
dist.destroy_process_group()
