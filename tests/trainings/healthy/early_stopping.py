"""Stops when the validation loss has not improved for five evaluations, then restores the best weights."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    def __init__(self, patience, delta):
        self.patience, self.delta = patience, delta
        self.best, self.count, self.weights = float("inf"), 0, None

    def __call__(self, value, model):
        if value < self.best - self.delta:
            self.best, self.count = value, 0
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.count += 1
        return self.count >= self.patience


def main():
    torch.manual_seed(26)
    torch.set_num_threads(1)
    x = torch.randn(4000, 12)
    y = (x[:, :4].sum(1) + torch.randn(4000)).unsqueeze(1)
    train_loader = DataLoader(TensorDataset(x[:3000], y[:3000]), batch_size=60, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    stopper = EarlyStopping(patience=5, delta=2e-3)
    for epoch in range(40):
        model.train()
        for xb, yb in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            val = nn.functional.mse_loss(model(x[3000:]), y[3000:]).item()
        print(f"epoch {epoch} val {val:.4f}")
        if stopper(val, model):
            model.load_state_dict(stopper.weights)
            print(f"stopped, best {stopper.best:.4f}")
            break


if __name__ == "__main__":
    main()
