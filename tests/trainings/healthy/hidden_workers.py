"""Two loader workers prepare batches while the network trains; their work is hidden behind the step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        rng = torch.Generator().manual_seed(index)
        label = index % 3
        grid = torch.arange(16) * (0.5 + 0.4 * label)
        image = torch.sin(grid[:, None] + 6.28 * torch.rand(1, generator=rng)) * torch.cos(grid[None])
        return image.unsqueeze(0) + 0.4 * torch.randn(1, 16, 16, generator=rng), label


def main():
    torch.manual_seed(14)
    torch.set_num_threads(1)
    loader = DataLoader(Textures(960), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Flatten(),
        nn.Linear(512, 3),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        total = 0.0
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
