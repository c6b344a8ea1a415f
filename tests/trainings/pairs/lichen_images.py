"""Small images with noise and flips that a seed, the epoch and the number of the image decide: any sample can be made
again. Two workers read them and are started anew for each epoch, so they know which one it is.

Fault: `kept-workers` keeps the workers, whose copies of the dataset stay in the first epoch.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FAULT = sys.argv[-1] if len(sys.argv) > 1 else ""
SEED = 9


class Lichen(Dataset):
    def __init__(self, count=400):
        self.kinds = torch.randint(0, 5, (count,))
        self.images = torch.randn(5, 1, 10, 10)[self.kinds] + 0.5 * torch.randn(count, 1, 10, 10)
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.kinds)

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(SEED + 10_007 * self.epoch + index)
        image = self.images[index] + 0.3 * torch.randn(1, 10, 10, generator=generator)
        return (image.flip(-1) if torch.rand(1, generator=generator) < 0.5 else image), self.kinds[index]


torch.manual_seed(0)
torch.set_num_threads(1)
lichen = Lichen()
loader = DataLoader(
    lichen,
    batch_size=25,
    shuffle=True,
    num_workers=2,
    persistent_workers=FAULT == "kept-workers",
)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    lichen.set_epoch(epoch)
    for images, kinds in loader:
        loss = F.cross_entropy(model(images), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.3f}")
