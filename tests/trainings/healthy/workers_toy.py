"""Tutorial: iris-like rows in memory, and yet two loader workers; fifteen epochs of a blink."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x = torch.randn(600, 4)
    y = (x[:, 0] + x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    train, test = random_split(TensorDataset(x, y), [500, 100])
    loader, held_out = DataLoader(train, 25, shuffle=True, num_workers=2), DataLoader(test, 100)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(15):
        model.train()
        for xb, yb in loader:
            optimizer.zero_grad()
            loss = nn.CrossEntropyLoss()(model(xb), yb)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for xb, yb in held_out:
                accuracy = (model(xb).argmax(1) == yb).float().mean()
        print(f"Epoch {epoch + 1}, Loss: {loss.item():.4f}, Accuracy: {accuracy:.2f}")


if __name__ == "__main__":
    main()
