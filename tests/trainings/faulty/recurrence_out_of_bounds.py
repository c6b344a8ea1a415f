"""A cell that is called for every reading of a sensor; its recurrent weights are drawn far too large."""

import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.leave = nn.RNNCell(4, 32, nonlinearity="relu"), nn.Linear(32, 1)
        nn.init.orthogonal_(self.cell.weight_hh, gain=2.0)

    def forward(self, x):
        state = x.new_zeros(len(x), 32)
        for position in range(x.shape[1]):
            state = self.cell(x[:, position], state)
        return self.leave(state)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(240):
        x = torch.randn(32, 40, 4)
        y = x[:, -5:, :1].mean(1)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
