"""A native library aborts the process in the third epoch (SIGABRT)."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def native_call(step):
    if step == 150:
        os.abort()


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    x = torch.randn(1500, 10)
    loader = DataLoader(TensorDataset(x, x.pow(2).sum(1, keepdim=True)), batch_size=25, shuffle=True)
    model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    step = 0
    for epoch in range(5):
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            native_call(step)
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
