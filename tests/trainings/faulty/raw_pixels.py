"""Pictures of bytes become floats from 0 to 255, and nobody divides: the first layer learns far too fast."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def pictures(count):
    label = torch.randint(0, 4, (count,))
    image = torch.randint(0, 90, (count, 1, 16, 16))
    for index, quadrant in enumerate(label.tolist()):
        top, left = 8 * (quadrant // 2), 8 * (quadrant % 2)
        image[index, 0, top + 1 : top + 7, left + 1 : left + 7] += 120
    return image.to(torch.uint8), label


def main():
    torch.manual_seed(83)
    torch.set_num_threads(1)
    image, label = pictures(1600)
    loader = DataLoader(TensorDataset(image, label), batch_size=32, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 8 * 8, 32),
        nn.ReLU(),
        nn.Linear(32, 4),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(5):
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x.float()), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")


if __name__ == "__main__":
    main()
