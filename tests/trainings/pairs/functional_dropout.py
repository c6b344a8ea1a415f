"""A network that uses the functional dropout; validation with `eval` and `inference_mode` on a loader of its own.

Faults: `no-training-flag` calls `F.dropout` without the `training` flag; `wrong-model` puts the wrapper's inner
copy, not the model in use, into eval mode; `in-a-list` keeps the dropout in a Python list, where `eval` does not find
it.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, fault=""):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(30, 128), nn.Linear(128, 128), nn.Linear(128, 4)
        self.norm = nn.LayerNorm(128)
        self.drop = nn.Dropout(0.25)
        if fault == "in-a-list":
            self.drop = None
            self.drops = [nn.Dropout(0.25)]
        self.fault = fault

    def forward(self, x):
        training = True if self.fault == "no-training-flag" else self.training
        x = F.dropout(F.relu(self.fc1(x)), 0.4, training=training)
        x = F.relu(self.norm(self.fc2(x)))
        if self.fault == "in-a-list":
            x = self.drops[0](x)
        else:
            x = self.drop(x)
        return self.fc3(x)


def split(n):
    x = torch.randn(n, 30)
    y = torch.stack([x[:, :5].sum(1), x[:, 5:10].sum(1), x[:, 10] * x[:, 11] * 2, x[:, 15]], 1).argmax(1)
    return x, y


def train_one_epoch(model, loader, optimizer):
    model.train()
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = F.nll_loss(F.log_softmax(model(inputs), dim=1), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def test(model, loader):
    correct = 0
    with torch.inference_mode():
        for inputs, targets in loader:
            correct += (model(inputs).argmax(1) == targets).sum().item()
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(29)
    torch.set_num_threads(1)
    x, y = split(4000)
    train_loader = DataLoader(TensorDataset(x[:3200], y[:3200]), batch_size=64, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[3200:], y[3200:]), batch_size=200)
    model = Net(args.fault)
    best = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    top = 0.0
    for epoch in range(1, 7):
        loss = train_one_epoch(model, train_loader, optimizer)
        if args.fault == "wrong-model":
            best.eval()
        else:
            model.eval()
        accuracy = test(model, test_loader)
        if accuracy > top:
            top = accuracy
            best.load_state_dict(model.state_dict())
        print(f"Epoch {epoch}: loss {loss:.4f} accuracy {accuracy:.3f} (best {top:.3f})")


if __name__ == "__main__":
    main()
