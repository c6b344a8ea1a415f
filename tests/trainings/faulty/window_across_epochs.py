"""Eleven batches an epoch, a step after every fourth: the three that are left over stay in the gradients, so that the
first step of the next epoch is made of seven.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(88)
    torch.set_num_threads(1)
    x = torch.randn(528, 14)
    y = (x[:, :4].prod(1) + x[:, 4]).unsqueeze(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=48, shuffle=True)
    model = nn.Sequential(nn.Linear(14, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    accumulate = 4
    optimizer.zero_grad()
    for epoch in range(60):
        for i, (inputs, wanted) in enumerate(loader):
            loss = nn.functional.mse_loss(model(inputs), wanted) / accumulate
            loss.backward()
            if (i + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: {loss.item() * accumulate:.4f}")


if __name__ == "__main__":
    main()
