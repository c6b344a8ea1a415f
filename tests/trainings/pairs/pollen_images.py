"""Small images with noise and flips. The dataset draws them from torch's generator, or makes one for each sample."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULT = sys.argv[-1] if len(sys.argv) > 1 else ""


class Pollen(Dataset):
    def __init__(self, count=600):
        self.kinds = torch.randint(0, 5, (count,))
        self.grains = torch.randn(5, 1, 10, 10)
        self.images = self.grains[self.kinds] + 0.5 * torch.randn(count, 1, 10, 10)

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        generator = None
        if FAULT == "seeded-by-index":
            generator = torch.Generator().manual_seed(index)
        noise = 0.3 * torch.randn(1, 10, 10, generator=generator)
        image = self.images[index] + noise
        return (image.flip(-1) if torch.rand(1, generator=generator) < 0.5 else image), self.kinds[index]


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
