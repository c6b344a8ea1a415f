"""A small CNN on pictures that were collected folder by folder: twenty batches of each kind follow one another."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Folders(Dataset):
    def __init__(self, pictures, seed):
        generator = torch.Generator().manual_seed(seed)
        patterns = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(77))
        noise = torch.randn(6, pictures, 3, 16, 16, generator=generator)
        self.items = [(patterns[kind] + 1.3 * noise[kind, at], kind) for kind in range(6) for at in range(pictures)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32 * 16, 6)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.head(F.max_pool2d(F.relu(self.second(x)), 2).flatten(1))


torch.manual_seed(0)
torch.set_num_threads(1)
train, held_out = DataLoader(Folders(320, 0), batch_size=16), DataLoader(Folders(30, 1), batch_size=60)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-4)
for epoch in range(5):
    net.train()
    for x, y in train:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        hits = sum((net(x).argmax(1) == y).sum().item() for x, y in held_out)
    print(epoch, hits / 180)
