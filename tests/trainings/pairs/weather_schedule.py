"""Temperatures of the next day from the last week, AdamW and a schedule.

Faults: `cosine-per-batch` steps a cosine made for epochs after every batch; `warmup-per-epoch` steps a warm-up made for
batches once per epoch; `one-cycle-per-epoch` the same with OneCycleLR; `zero-early` lets a linear decay end far too
soon; `milestones-per-batch` steps milestones of epochs after every batch; `forgotten-step` never steps the scheduler;
`other-optimizer` makes the optimizer again after its scheduler; `cosine-in-batches` makes a cosine for as many steps as
there are batches, and steps it with every fourth of them, as the optimizer.
"""

import argparse

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, MultiStepLR, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    fault, epochs = args.fault, args.epochs
    torch.manual_seed(81)
    torch.set_num_threads(1)
    days = torch.sin(torch.arange(1300) / 58) + 0.2 * torch.randn(1300)
    weeks = days.unfold(0, 8, 1)
    loader = DataLoader(TensorDataset(weeks[:, :7], weeks[:, 7:]), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(7, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    total = epochs * len(loader)
    per_batch = fault in ("cosine-per-batch", "milestones-per-batch", "zero-early", "cosine-in-batches")
    accumulate = 4 if fault == "cosine-in-batches" else 1
    if fault == "warmup-per-epoch":
        scheduler = LambdaLR(optimizer, lambda step: min(1.0, step / (total // 4)))
    elif fault == "one-cycle-per-epoch":
        scheduler = OneCycleLR(optimizer, max_lr=1e-2, total_steps=total)
    elif fault == "zero-early":
        scheduler = LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=2 * len(loader))
    elif fault == "milestones-per-batch":
        scheduler = MultiStepLR(optimizer, [5, 8])
    elif fault == "cosine-in-batches":
        scheduler = CosineAnnealingLR(optimizer, T_max=total)
    else:
        scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
    if fault == "other-optimizer":
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    for epoch in range(epochs):
        for index, (past, tomorrow) in enumerate(loader):
            loss = nn.functional.mse_loss(model(past), tomorrow)
            (loss / accumulate).backward()
            if (index + 1) % accumulate:
                continue
            optimizer.step()
            optimizer.zero_grad()
            if per_batch:
                scheduler.step()
        if not per_batch and fault != "forgotten-step":
            scheduler.step()
        print(epoch, round(loss.item(), 4), optimizer.param_groups[0]["lr"])


if __name__ == "__main__":
    main()
