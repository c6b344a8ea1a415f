"""Levels of the tide from a window before: batches of 8, four of which make an update, and a rate that falls to the end.

--fault counts-batches: the loop ends when it has seen as many batches as it was to make updates.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def windows(count, generator):
    begin = 200 * torch.rand(count, 1, generator=generator)
    time = begin + torch.arange(30)
    level = torch.sin(time / 2.0) + 0.5 * torch.sin(time / 2.3 + 1) + 0.05 * torch.randn(count, 30, generator=generator)
    return TensorDataset(level[:, :24], level[:, 24:])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--accum", type=int, default=4)
    opt = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(18)
    loader = DataLoader(windows(464, generator), batch_size=8, shuffle=True)
    held_out = DataLoader(windows(200, generator), batch_size=100)
    model = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    total_updates = opt.epochs * len(loader) // opt.accum
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: max(0.02, 1 - done / total_updates))
    batches, updates = 0, 0
    for epoch in range(opt.epochs):
        model.train()
        for before, after in loader:
            loss = nn.functional.mse_loss(model(before), after)
            (loss / opt.accum).backward()
            batches += 1
            if batches % opt.accum == 0:
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                updates += 1
            made = batches if opt.fault == "counts-batches" else updates
            if made >= total_updates:
                break
        model.eval()
        with torch.no_grad():
            error = sum((model(before) - after).abs().sum().item() for before, after in held_out) / (200 * 6)
        print(f"epoch {epoch + 1}  loss {loss.item():.4f}  error {error:.4f}")
        if made >= total_updates:
            break


if __name__ == "__main__":
    main()
