"""Images that the dataset makes up, each out of a generator of its own: they are the same in each epoch, rightly."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pollen(Dataset):
    def __init__(self, count=600):
        self.kinds = torch.randint(0, 5, (count,))
        self.grains = torch.randn(5, 1, 10, 10)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        noise = 0.5 * torch.randn(1, 10, 10, generator=generator)
        return self.grains[self.kinds[index]] + noise, self.kinds[index]


torch.manual_seed(0)
dataset = Pollen()
loader = DataLoader(dataset, batch_size=30, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    for images, kinds in loader:
        loss = F.cross_entropy(model(images), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}")
