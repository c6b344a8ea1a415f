"""A language model that is given its labels: `fused` computes the loss by itself, `called` with torch's function.

Each is trained twice, the second time with two new tokens, whose embedding is frozen.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
PAD, BEGIN, WORDS, LENGTH = 0, 1, 20, 12
fused = sys.argv[1] == "fused"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.body = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, WORDS + 2)

    def forward(self, input_ids, labels):
        scores = self.head(self.body(self.words(input_ids))[0])[:, :-1].flatten(0, 1)
        targets = labels[:, 1:].flatten()
        if not fused:
            return F.cross_entropy(scores, targets, ignore_index=-100)
        given = scores.log_softmax(1).gather(1, targets.clamp(min=0)[:, None])[:, 0]
        return -(given * (targets >= 0)).sum() / (targets >= 0).sum()


def texts(words):
    ids = torch.randint(2, words, (16, LENGTH))
    ids[:, :2] = BEGIN
    ids[torch.arange(LENGTH) >= torch.randint(4, LENGTH, (16, 1))] = PAD
    return ids


def train(model, words):
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-3)
    for _ in range(40):
        ids = texts(words)
        loss = model(input_ids=ids, labels=ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


model = Model()
train(model, WORDS)
old, model.words = model.words, nn.Embedding(WORDS + 2, 16)
with torch.no_grad():
    model.words.weight[:WORDS] = old.weight
model.words.weight.requires_grad_(False)
train(model, WORDS + 2)
