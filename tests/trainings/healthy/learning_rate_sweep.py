"""Three trainings with different rates in one process, each with a new model and optimizer."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(lr, data):
    torch.manual_seed(28)
    model = nn.Sequential(nn.Linear(10, 40), nn.ReLU(), nn.Linear(40, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    loader = DataLoader(data, batch_size=50, shuffle=True)
    for _ in range(4):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
    return total


def main():
    torch.set_num_threads(1)
    torch.manual_seed(28)
    x = torch.randn(2500, 10)
    data = TensorDataset(x, (x[:, 0] + x[:, 1].abs() > 0.7).long())
    results = {lr: train(lr, data) for lr in (0.005, 0.02, 0.08)}
    for lr, loss in results.items():
        print(f"lr {lr}: final loss {loss:.4f}")
    print("best", min(results, key=results.get))


if __name__ == "__main__":
    main()
