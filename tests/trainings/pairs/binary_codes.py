"""An autoencoder whose codes are bits. Fault: `no-way-back` rounds without a straight-through estimator, so that the
gradient of everything before it is zero; `rounded-answers` rounds what the loss is given, and leaves no way back at all.
"""

import argparse

import torch
from torch import nn


class BinaryCoder(nn.Module):
    def __init__(self, fault, features=50, bits=16):
        super().__init__()
        self.fault = fault
        self.encode = nn.Sequential(nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, bits))
        self.decode = nn.Sequential(nn.Linear(bits, 64), nn.ReLU(), nn.Linear(64, features))

    def forward(self, x):
        soft = torch.sigmoid(self.encode(x))
        if self.fault == "no-way-back":
            return self.decode(soft.round())
        decoded = self.decode(soft + (soft.round() - soft).detach())
        return torch.round(decoded) if self.fault == "rounded-answers" else decoded


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "no-way-back", "rounded-answers"])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = torch.tanh(torch.randn(4000, 6) @ torch.randn(6, 50))
    model = BinaryCoder(parser.parse_args().fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(600):
        batch = data[torch.randint(0, len(data), (64,))]
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
