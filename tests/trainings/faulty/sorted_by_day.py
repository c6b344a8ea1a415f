"""Activity recognition from a file sorted by activity, handed to the loader with an explicit sequential sampler."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler


class Activities(Dataset):
    def __init__(self):
        self.label = torch.arange(8).repeat_interleave(150)
        self.x = (
            torch.randn(1200, 6, 30) + 0.8 * torch.sin(torch.arange(30) * (0.1 + 0.1 * self.label[:, None]))[:, None]
        )

    def __len__(self):
        return 1200

    def __getitem__(self, rows):
        return self.x[rows], self.label[rows]


torch.manual_seed(99)
torch.set_num_threads(1)
dataset = Activities()
loader = DataLoader(dataset, batch_size=None, sampler=BatchSampler(SequentialSampler(dataset), 25, drop_last=False))
net = nn.Sequential(nn.Conv1d(6, 24, 5), nn.ReLU(), nn.AdaptiveMaxPool1d(4), nn.Flatten(), nn.Linear(96, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(6):
    total = 0.0
    for x, label in loader:
        loss = nn.functional.cross_entropy(net(x), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} {total / len(loader):.4f}")
