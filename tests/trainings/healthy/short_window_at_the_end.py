"""Ten batches an epoch and a step after every fourth, or at the end of the epoch: each time with the two left over."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(89)
    torch.set_num_threads(1)
    x = torch.randn(500, 9)
    y = (x[:, 0] * x[:, 1] > x[:, 2]).float()
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    model = nn.Sequential(nn.Linear(9, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    accumulate = 4
    for epoch in range(50):
        for i, (inputs, labels) in enumerate(loader):
            loss = nn.functional.binary_cross_entropy_with_logits(model(inputs).squeeze(1), labels)
            (loss / accumulate).backward()
            if (i + 1) % accumulate == 0 or i + 1 == len(loader):
                optimizer.step()
                optimizer.zero_grad()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
