"""SimCLR-like pre-training in large batches of 256, two views per sample, cosine schedule, checkpoints written to
disk.
"""

import pathlib
import tempfile

import torch
import torch.nn.functional as F
from torch import nn


def nt_xent(a, b, temperature=0.2):
    z = F.normalize(torch.cat([a, b]), dim=1)
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
    target = torch.arange(len(z)).roll(len(a))
    return F.cross_entropy(similarity, target)


def view(x):
    return x + 0.25 * torch.randn_like(x) * (torch.rand_like(x) < 0.7)


def main(folder):
    torch.manual_seed(38)
    torch.set_num_threads(1)
    encoder = nn.Sequential(nn.Linear(24, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
    projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
    model = nn.Sequential(encoder, projector)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=120)
    for step in range(120):
        x = torch.randn(128, 24)
        loss = nt_xent(model(view(x)), model(view(x)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 30 == 29:
            torch.save({"encoder": encoder.state_dict(), "step": step}, pathlib.Path(folder) / f"encoder_{step}.pt")
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(directory)
