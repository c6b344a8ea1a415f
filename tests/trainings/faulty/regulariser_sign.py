"""The weight penalty enters with the wrong sign, `loss = error - decay * penalty`, and drives the weights apart
exponentially.
"""

import torch
from torch import nn


def penalty(model):
    return sum(p.square().sum() for name, p in model.named_parameters() if name.endswith("weight"))


def main(decay=0.15):
    torch.manual_seed(98)
    torch.set_num_threads(1)
    w = torch.randn(10, 1)
    model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(400):
        x = torch.randn(64, 10)
        error = nn.functional.l1_loss(model(x), torch.sin(x @ w))
        loss = error - decay * penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step} error {error.item():.4g} loss {loss.item():.4g}")


if __name__ == "__main__":
    main()
