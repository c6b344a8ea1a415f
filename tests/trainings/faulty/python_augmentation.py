"""Image classifier whose augmentation walks over the pixels in Python, in the training process (`num_workers=0`)."""

import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, n, augment):
        self.labels = torch.randint(0, 2, (n,))
        self.images = torch.randn(n, 14, 14) * 0.5
        self.images[self.labels == 1, 4:10, 4:10] += 0.7
        self.augment = augment

    def jitter(self, image):
        pixels = image.tolist()
        dy, dx = random.randint(-1, 1), random.randint(-1, 1)
        rows = []
        for r in range(14):
            row = []
            for c in range(14):
                value = pixels[(r + dy) % 14][(c + dx) % 14]
                value = value * random.uniform(0.9, 1.1) + random.gauss(0, 0.05)
                row.append(max(min(value, 3.0), -3.0))
            rows.append(row)
        return torch.tensor(rows)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.augment:
            for _ in range(3):
                image = self.jitter(image)
        return image.unsqueeze(0), self.labels[index]


def main():
    random.seed(0)
    torch.manual_seed(22)
    torch.set_num_threads(1)
    train_loader = DataLoader(Shapes(640, augment=True), batch_size=16, shuffle=True)
    val_loader = DataLoader(Shapes(200, augment=False), batch_size=100)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(400, 2),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        model.train()
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            hits = sum((model(x).argmax(1) == y).sum().item() for x, y in val_loader)
        print(f"epoch {epoch} loss {loss.item():.4f} val acc {hits / 200:.3f}")


if __name__ == "__main__":
    main()
