"""The heat that a house needs, from its weather and its walls. `--fault`: first-house-only, anomaly-mode, and
profiler-again, whose windows follow each other to the end."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--fault", choices=["none", "first-house-only", "anomaly-mode", "profiler-again"], default="none")
FAULT = parser.parse_args().fault


class Houses(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.weather = torch.randn(count, 6, generator=generator)
        self.walls = torch.randn(count, 3, generator=generator)
        demand = torch.relu(self.weather[:, :2]).sum(1) + self.walls[:, 0]
        self.demand = (demand + 0.1 * torch.randn(count, generator=generator)).unsqueeze(1)

    def __len__(self):
        return len(self.demand)

    def __getitem__(self, index):
        return {"weather": self.weather[index], "walls": self.walls[index], "demand": self.demand[index]}


def collate(houses):
    batch = {name: torch.stack([house[name] for house in houses]) for name in ("weather", "walls", "demand")}
    if FAULT == "first-house-only":
        batch["walls"] = houses[0]["walls"].unsqueeze(0)
    return batch


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weather = nn.Linear(6, 32)
        self.walls = nn.Linear(3, 32)
        self.head = nn.Linear(32, 1)

    def forward(self, batch):
        return self.head(torch.relu(self.weather(batch["weather"]) + self.walls(batch["walls"])))


def profiler():
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=8),
    )


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if FAULT == "anomaly-mode":
        torch.autograd.set_detect_anomaly(True)
    train_loader = DataLoader(Houses(1600, 1), batch_size=32, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Houses(400, 2), batch_size=100, collate_fn=collate)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.MSELoss()
    watcher = profiler() if FAULT == "profiler-again" else None
    if watcher:
        watcher.start()
    for epoch in range(8):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), batch["demand"])
            loss.backward()
            optimizer.step()
            if watcher:
                watcher.step()
        model.eval()
        with torch.no_grad():
            losses = [criterion(model(batch), batch["demand"]).item() for batch in val_loader]
        print(f"epoch {epoch} train {loss.item():.3f} val {sum(losses) / len(losses):.3f}")
    if watcher:
        watcher.stop()


if __name__ == "__main__":
    main()
