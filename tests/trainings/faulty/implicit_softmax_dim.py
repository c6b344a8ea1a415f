"""Per-word tags of sentences: nn.LogSoftmax() without dim takes dimension 0 of [B, T, C], which holds the sentences."""

import torch
from torch import nn


def make_batch(size):
    words = torch.randint(0, 40, (size, 11))
    return words, (words % 5 + words.roll(1, 1) % 2) % 5


def run(steps=300):
    embed, mix = nn.Embedding(40, 24), nn.Conv1d(24, 24, 3, padding=1)
    head, normalise, criterion = nn.Linear(24, 5), nn.LogSoftmax(), nn.NLLLoss()
    parameters = [*embed.parameters(), *mix.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=5e-3)

    def closure():
        words, tags = make_batch(32)
        hidden = torch.relu(mix(embed(words).transpose(1, 2))).transpose(1, 2)
        return criterion(normalise(head(hidden)).reshape(-1, 5), tags.reshape(-1))

    for step in range(steps):
        optimizer.zero_grad()
        loss = closure()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"{step}: {loss.item():.3f}")


torch.manual_seed(66)
torch.set_num_threads(1)
run()
