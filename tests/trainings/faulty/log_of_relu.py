"""Poisson regression whose rate is the output of a ReLU: `torch.log(rate)` meets an exact zero after some steps."""

import torch
from torch import nn


class CountModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 1))
        nn.init.constant_(self.net[2].bias, 1.2)

    def forward(self, x):
        return torch.relu(self.net(x)).squeeze(1)


def nll(rate, counts):
    return (rate - counts * torch.log(rate)).mean()


def main():
    torch.manual_seed(67)
    torch.set_num_threads(1)
    model = CountModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(300):
        x = torch.randn(64, 6)
        counts = torch.poisson(torch.exp(0.8 * x[:, 0] + 0.3))
        loss = nll(model(x), counts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} nll {loss.item():.4f}")


if __name__ == "__main__":
    main()
