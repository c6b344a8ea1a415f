"""Estimate the wear of a bearing from its vibration. The default of an option has an exponent too many in it."""

import argparse

import torch
from torch import nn


def parsed():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=48)
    parser.add_argument(
        "--learning-rate",
        type=float,
        default=1e-7,
        help="of Adam, for all parameters",
    )
    parser.add_argument("--epochs", type=int, default=8)
    return parser.parse_args()


def make_optimizer(model, lr):
    return torch.optim.Adam(model.parameters(), lr=lr)


def main(args):
    torch.manual_seed(21)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(12, args.hidden), nn.ReLU(), nn.Linear(args.hidden, args.hidden), nn.ReLU(), nn.Linear(args.hidden, 1)
    )
    optimizer = make_optimizer(model, args.learning_rate)
    x = torch.randn(1500, 12)
    y = torch.tanh(x[:, :1] * x[:, 1:2]) + x[:, 2:5].clamp(-1, 1).sum(1, keepdim=True) + 0.1 * torch.randn(1500, 1)
    for epoch in range(args.epochs):
        total = 0.0
        for pick in torch.randperm(len(x)).split(50):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x[pick]), y[pick])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(pick)
        print(f"{epoch}: {total / len(x):.4f}")


if __name__ == "__main__":
    main(parsed())
