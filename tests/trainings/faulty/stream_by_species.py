"""Bird calls from an iterable dataset whose files hold one species each; the buffer that shuffles is far smaller."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

SPECIES, CALLS = 6, 320


class Recordings(IterableDataset):
    def __init__(self, buffer):
        self.buffer = buffer
        pitch = 0.2 + 0.15 * torch.arange(SPECIES)
        self.files = [
            [(torch.sin(pitch[one] * torch.arange(40) + phase) + 0.3 * torch.randn(40), one) for phase in starts]
            for one, starts in enumerate(6.28 * torch.rand(SPECIES, CALLS))
        ]

    def __iter__(self):
        held = []
        for recording in self.files:
            for call in recording:
                held.append(call)
                if len(held) > self.buffer:
                    yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


torch.manual_seed(12)
random.seed(12)
torch.set_num_threads(1)
loader = DataLoader(Recordings(buffer=50), batch_size=32)
net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, SPECIES))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    total = count = 0
    for sound, species in loader:
        loss = nn.functional.cross_entropy(net(sound), species)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total, count = total + loss.item(), count + 1
    print(f"epoch {epoch} {total / count:.4f}")
