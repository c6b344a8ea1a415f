"""A trainer whose validation goes through the same `shared_step` as its training, in eval mode but with autograd on."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self):
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.02)

    def shared_step(self, batch):
        inputs, targets = batch
        answers = self.net(inputs)
        return (answers - targets).square().mean()

    def fit(self, train_loader, val_loader, epochs):
        for epoch in range(epochs):
            self.net.train()
            for batch in train_loader:
                loss = self.shared_step(batch)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            print(f"epoch {epoch}: held-out loss {self.validate(val_loader):.4f}")

    def validate(self, val_loader):
        self.net.eval()
        losses = [self.shared_step(batch).item() for batch in val_loader]
        return sum(losses) / len(losses)


def main():
    torch.manual_seed(17)
    torch.set_num_threads(1)
    x = torch.randn(1280, 8)
    y = x[:, :2].sum(1, keepdim=True) + 0.3 * torch.randn(1280, 1)
    train = DataLoader(TensorDataset(x[:1024], y[:1024]), batch_size=32, shuffle=True)
    held_out = DataLoader(TensorDataset(x[1024:], y[1024:]), batch_size=64)
    Trainer().fit(train, held_out, epochs=8)


if __name__ == "__main__":
    main()
