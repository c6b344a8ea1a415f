"""Trains small additions to a frozen model, and its head, under reentrant checkpointing: nothing that goes into the first
checkpointed layer needs a gradient, so that only the head gets one.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(4)
torch.set_num_threads(1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(2)])
        self.added = nn.ModuleList([nn.Linear(16, 16, bias=False) for _ in range(2)])
        self.head = nn.Linear(16, 5)

    def block(self, number, hidden):
        return self.layers[number](hidden) + self.added[number](hidden)

    def forward(self, words, saving):
        hidden = self.embedding(words)
        for number in range(2):
            if saving:
                hidden = checkpoint(self.block, number, hidden, use_reentrant=True)
            else:
                hidden = self.block(number, hidden)
        return self.head(hidden)


def train(model, steps, saving):
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    for step in range(steps):
        words = torch.randint(0, 20, (32, 6))
        loss = nn.functional.cross_entropy(model(words, saving).flatten(0, 1), (words % 5).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())


model = Tagger()
train(model, 90, False)
for name, parameter in model.named_parameters():
    parameter.requires_grad_("added" in name or "head" in name)
train(model, 90, True)
