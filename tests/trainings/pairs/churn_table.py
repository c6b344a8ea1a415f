"""Who leaves, and what will be used tomorrow: a table of customers, and windows of a series.

Faults: `label-column` leaves the label in the table when it is standardised. `label-written-out` does so with a number
and a loss that is written out. `few-leave` is a table of which one customer in twenty leaves; `weighed-down` makes them count for less still. `blank-held`
has a gap in the rows that are held out; `tight-clip` clips to a thousandth. `open-window` has windows that end in the value to be foretold. `keys` and
`queries` are attention over the windows, healthy and with a softmax over the queries.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attending(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.enter, self.qkv, self.leave = nn.Linear(2, 24), nn.Linear(24, 72), nn.Linear(24, 1)

    def forward(self, x):
        h = self.enter(x)
        q, k, v = (one.unflatten(-1, (2, 12)).transpose(1, 2) for one in self.qkv(h).chunk(3, -1))
        weights = (q @ k.transpose(-2, -1) / 12**0.5).softmax(self.dim)
        return self.leave((h + (weights @ v).transpose(1, 2).flatten(2)).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.leave = nn.GRU(2, 24, batch_first=True), nn.Linear(24, 1)

    def forward(self, x):
        return self.leave(self.layer(x)[0][:, -1])


def windows(beyond):
    time = torch.arange(1600) / 20
    series = torch.stack([torch.cos(time), torch.sin(time)], 1) + 0.2 * torch.randn(1600, 2)
    starts = torch.randperm(1500)
    x = torch.stack([series[i : i + 24] for i in starts])
    return x, torch.stack([series[i + 23 + beyond, 1:] for i in starts])


def customers(fault):
    table = torch.randn(2000, 7)
    leaves = table[:, 0] + table[:, 1] + 1.5 * torch.randn(2000)
    target = (
        leaves
        if fault == "label-written-out"
        else (leaves > (3.4 if fault in ("few-leave", "weighed-down") else 0)).float()
    )
    if fault in ("label-column", "label-written-out"):
        table = torch.cat([table, target[:, None]], 1)
    return (table - table.mean(0)) / table.std(0), target[:, None]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(4)
    torch.set_num_threads(1)
    of_series = fault in ("open-window", "window", "keys", "queries")
    x, y = windows(0 if fault == "open-window" else 1) if of_series else customers(fault)
    if fault in ("keys", "queries"):
        model = Attending(-1 if fault == "keys" else -2)
    else:
        model = Recurrent() if of_series else nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
    measure = F.mse_loss if of_series or fault == "label-written-out" else F.binary_cross_entropy_with_logits
    if fault == "weighed-down":
        measure = nn.BCEWithLogitsLoss(pos_weight=y.mean() / (1 - y.mean()))
    held = len(x) // 5
    if fault == "blank-held":
        x[7, 3] = float("nan")
    loader = DataLoader(TensorDataset(x[held:], y[held:]), batch_size=40, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(6):
        model.train()
        for xb, yb in loader:
            answer = model(xb)
            if fault == "label-written-out":
                loss = ((answer - yb) ** 2).mean()
            else:
                loss = measure(answer, yb)
            optimizer.zero_grad()
            loss.backward()
            if fault == "tight-clip":
                nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print(epoch, loss.item(), measure(model(x[:held]), y[:held]).item())


if __name__ == "__main__":
    main()
