"""Initialises a model in the way that its argument names, and trains three steps."""

import copy
import sys

import torch
from torch import nn

how = sys.argv[1]
torch.manual_seed(0)


def fill(module):
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight.data if how == "data" else module.weight, std=0.2)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)


def make():
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 8), nn.Linear(8, 2))


pretrained = copy.deepcopy(make().state_dict())
for _ in range(5):
    model = make()  # those that are gone may have been where the last one is
if how == "device":
    with torch.device("cpu"):
        model = make()
if how in ("once", "device", "data"):
    model.apply(fill)
if how in ("thrice", "data"):
    model.apply(fill)
    model.apply(fill)
if how == "by a library":  # as its models do when they are made
    exec(
        compile(
            "for _ in range(2):\n    for layer in model:\n        if hasattr(layer, 'weight'):\n"
            "            torch.nn.init.normal_(layer.weight, std=0.2)",
            "<library>",
            "exec",
        )
    )
if how == "loaded first":
    model.load_state_dict(pretrained)
    model.apply(fill)
if how == "loaded in its class":

    class Tagger(nn.Module):
        def __init__(self, state):
            super().__init__()
            self.body = make()
            self.init_weights()
            self.body.load_state_dict(state)
            self.head = nn.Linear(2, 2)
            self.init_weights()  # not model.apply(fill), and again what was loaded

        def init_weights(self):
            for module in self.modules():
                fill(module)

        def forward(self, x):
            return self.head(self.body(x))

    model = Tagger(pretrained)
if how == "loaded last":
    model.apply(fill)
    model.load_state_dict(pretrained)
if how.startswith("part"):
    if how == "part anew":
        model.apply(fill)
    model[2].load_state_dict({"weight": pretrained["2.weight"], "bias": pretrained["2.bias"]})
    if how == "part used, then filled":
        model(torch.randn(4, 6))
    if how == "part anew":
        model[2].apply(fill)
    else:
        model.apply(fill)
if how.startswith("vectors"):
    model[0] = nn.Embedding.from_pretrained(torch.randn(6, 12), freeze=how == "vectors frozen")
    if how in ("vectors first", "vectors frozen"):
        model.apply(fill)
    if how == "vectors kept":
        for layer in list(model)[1:]:
            fill(layer)
if how == "new head":
    model.load_state_dict(pretrained)
    model[-1].reset_parameters()
    model[-2] = nn.Linear(12, 8)
if how.startswith("second"):  # of two trainings in one process
    before = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.randn(4, 6)).square().sum().backward()
        before.step()
        before.zero_grad()
    for _ in range(3):
        model.apply(fill)  # weights that were trained
if how in ("second loaded first", "second loaded last"):
    pretrained, model = copy.deepcopy(model.state_dict()), make()
    if how == "second loaded last":
        model.apply(fill)
    model.load_state_dict(pretrained)
    if how == "second loaded first":
        model.apply(fill)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    x = torch.randn(16, 6)
    given = torch.randint(6, (16,)) if how.startswith("vectors") else x
    loss = nn.functional.mse_loss(model(given), x[:, :2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if how == "dead units":
        for _ in range(4):
            model.apply(fill)
print(f"{sum(float(p.detach().sum()) for p in model.parameters()):.9f}")
