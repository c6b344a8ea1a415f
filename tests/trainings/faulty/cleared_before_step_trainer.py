"""A Trainer with an `optimize` method whose calls are in the wrong order: backward, zero_grad, step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.RMSprop(model.parameters(), lr=lr)
        self.criterion = nn.SmoothL1Loss()
        self.step = 0

    def optimize(self, loss):
        loss.backward()
        self.optimizer.zero_grad(set_to_none=False)
        self.optimizer.step()
        self.step += 1

    def run(self, epochs):
        for epoch in range(epochs):
            losses = []
            for x, y in self.loader:
                loss = self.criterion(self.model(x), y)
                self.optimize(loss)
                losses.append(loss.item())
            print(f"epoch {epoch} (step {self.step}): {sum(losses) / len(losses):.4f}")


def main():
    torch.manual_seed(20)
    torch.set_num_threads(1)
    x = torch.randn(2000, 6)
    y = (x[:, :2] * x[:, 2:4]).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    Trainer(model, DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True), lr=1e-3).run(epochs=6)


if __name__ == "__main__":
    main()
