"""GRU whose hidden state is made for full batches; the last, shorter batch of the epoch does not fit it."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Series(nn.Module):
    def __init__(self, batch_size):
        super().__init__()
        self.gru = nn.GRU(2, 24, batch_first=True)
        self.fc = nn.Linear(24, 1)
        self.h0 = torch.zeros(1, batch_size, 24)

    def forward(self, x):
        return self.fc(self.gru(x, self.h0)[0][:, -1]).squeeze(1)


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    x = torch.randn(1010, 12, 2)
    y = x[:, :, 0].mean(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Series(16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(3):
        for i, (xb, yb) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
