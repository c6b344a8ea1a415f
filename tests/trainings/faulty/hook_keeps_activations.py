"""Autoencoder with a forward hook that records activations for a histogram and never drops them:
`recorded.append(output)` keeps each batch's graph.
"""

import torch
from torch import nn


def build():
    return nn.Sequential(
        nn.Linear(64, 256), nn.LeakyReLU(), nn.Linear(256, 16), nn.Linear(16, 256), nn.LeakyReLU(), nn.Linear(256, 64)
    )


def main():
    torch.manual_seed(37)
    torch.set_num_threads(1)
    basis = torch.randn(10, 64)
    model = build()
    recorded = []

    def record(module, inputs, output):
        recorded.append(output)

    model[1].register_forward_hook(record)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=200, gamma=0.5)
    for it in range(450):
        x = torch.tanh(torch.randn(96, 10) @ basis / 3)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if it % 75 == 0:
            print(f"it={it} loss={loss.item():.5f} recorded={len(recorded)}")


if __name__ == "__main__":
    main()
