"""Truncated backpropagation through a long recording, piece by piece, with BatchNorm on the way in.

Faults: `tiny-microbatches` accumulates sixteen micro-batches of two for a step.
"""

import argparse

import torch
from torch import nn


class Tremor(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.BatchNorm1d(3)
        self.cell = nn.GRUCell(3, 24)
        self.out = nn.Linear(24, 1)

    def forward(self, piece, state):
        scaled = self.scale(piece.flatten(0, 1)).view_as(piece)
        outputs = []
        for t in range(piece.shape[1]):
            state = self.cell(scaled[:, t], state)
            outputs.append(self.out(state))
        return torch.stack(outputs, 1), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(86)
    torch.set_num_threads(1)
    batch, micro = (2, 16) if fault == "tiny-microbatches" else (16, 1)
    model = Tremor()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    state = torch.zeros(batch, 24)
    for step in range(120):
        optimizer.zero_grad()
        for _ in range(micro):
            piece = torch.randn(batch, 5, 3)
            prediction, following = model(piece, state)
            loss = (prediction - piece.cumsum(1).sum(2, keepdim=True)).pow(2).mean() / micro
            loss.backward()
            state = following.detach()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
