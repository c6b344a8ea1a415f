"""The seed is set at the beginning of each epoch, "for reproducibility": the loader shuffles the same way every time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run_epoch(model, optimizer, loader, epoch):
    torch.manual_seed(1234)
    total = 0.0
    for inputs, targets in loader:
        loss = nn.functional.smooth_l1_loss(model(inputs).squeeze(1), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")


def main():
    torch.manual_seed(7)
    torch.set_num_threads(1)
    inputs = torch.randn(960, 12)
    targets = (inputs[:, :3].sum(1) * inputs[:, 3]).sin() + 0.1 * torch.randn(960)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=24, shuffle=True)
    model = nn.Sequential(nn.Linear(12, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(8):
        run_epoch(model, optimizer, loader, epoch)


if __name__ == "__main__":
    main()
