"""Two functions build the loaders, and each draws its own random split: most of the validation set is trained on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def readings():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1500, 20, generator=generator)
    y = (x[:, :4].sum(1) + torch.randn(1500, generator=generator) > 0).long()
    return TensorDataset(x, y)


def training_loader():
    part, _ = random_split(readings(), [0.8, 0.2])
    return DataLoader(part, batch_size=32, shuffle=True)


def validation_loader():
    _, part = random_split(readings(), [0.8, 0.2])
    return DataLoader(part, batch_size=25)


def main():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    train, held_out = training_loader(), validation_loader()
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(10):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        correct = total = 0.0
        with torch.no_grad():
            for x, y in held_out:
                scores = model(x)
                total += criterion(scores, y).item()
                correct += (scores.argmax(1) == y).sum().item()
        print(f"epoch {epoch}: loss {total / len(held_out):.4f}, {correct / 300:.3f} right")


if __name__ == "__main__":
    main()
