"""Trains small additions to a frozen model under checkpointing that its settings make reentrant: what goes into the
first checkpointed layer needs no gradient, so that only the head gets one.
"""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(7)
torch.set_num_threads(1)


class Settings:
    rate = 3e-3
    steps = 90
    checkpointing = {"use_reentrant": True, "preserve_rng_state": False}


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
        self.added = nn.Linear(16, 16, bias=False)

    def forward(self, hidden, scale):
        return self.inner(hidden) + scale * self.added(hidden)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(16, 5)

    def forward(self, words, settings=None):
        hidden = self.embedding(words)
        for layer in self.layers:
            run = partial(layer.forward, scale=0.5)
            hidden = checkpoint(run, hidden, **settings) if settings else run(hidden)
        return self.head(hidden)


def train(model, settings):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=Settings.rate)
    for step in range(Settings.steps):
        words = torch.randint(0, 20, (32, 6))
        loss = nn.functional.cross_entropy(model(words, settings).flatten(0, 1), (words % 5).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


model = Tagger()
train(model, None)
for name, parameter in model.named_parameters():
    parameter.requires_grad_("added" in name or "head" in name)
train(model, Settings.checkpointing)
