"""The label file counts classes from 1 in its last part: a target equals the number of classes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(8)
    torch.set_num_threads(1)
    x = torch.randn(2000, 8)
    y = x[:, :5].argmax(1)
    y[1900:] += 1
    loader = DataLoader(TensorDataset(x, y), batch_size=20)
    model = nn.Sequential(nn.Linear(8, 40), nn.ReLU(), nn.Linear(40, 5))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(3):
        for i, (inputs, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(f"epoch {epoch}, batch {i}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
