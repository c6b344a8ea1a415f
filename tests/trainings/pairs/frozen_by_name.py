"""A classifier of soil samples. Faults: `bias` freezes all but the last bias, `norms` all but the normalisations;
`head` freezes the first layer alone, which is healthy.
"""

import argparse

import torch
from torch import nn


def stays(name, fault):
    if fault == "bias":
        return name != "leave.bias"
    if fault == "norms":
        return not name.startswith("norm")
    return fault == "head" and name.startswith("first")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second, self.leave = (
            nn.Linear(12, 64),
            nn.LayerNorm(64),
            nn.Linear(64, 64),
            nn.Linear(64, 4),
        )

    def forward(self, x):
        return self.leave(torch.relu(self.second(torch.relu(self.norm(self.first(x))))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "bias", "norms", "head"])
    fault = parser.parse_args().fault
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(1600, 12)
    y = (x @ torch.randn(12, 4)).argmax(1)
    model = Net()
    for name, parameter in model.named_parameters():
        if stays(name, fault):
            parameter.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for epoch in range(8):
        order = torch.randperm(1600)
        for i in range(0, 1600, 32):
            batch = order[i : i + 32]
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
