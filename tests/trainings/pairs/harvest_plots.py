"""The harvest of a plot, from a season's weather and its kind of soil; a collator turns mappings into a tuple.

Fault: `last-soil` puts below the loop over plots what belongs to each of them, so that all have the soil of the last.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOILS = 24


class Plots(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.weather = torch.randn(count, 5, generator=generator)
        self.soil = torch.randint(0, SOILS, (count,), generator=generator).tolist()
        bonus = torch.linspace(-1.5, 1.5, SOILS)[torch.tensor(self.soil)]
        self.harvest = self.weather[:, :2].relu().sum(1) + bonus + 0.1 * torch.randn(count, generator=generator)

    def __len__(self):
        return len(self.soil)

    def __getitem__(self, index):
        return {"weather": self.weather[index], "soil": self.soil[index], "harvest": self.harvest[index]}


class Collator:
    def __init__(self, last):
        self.last = last

    def __call__(self, plots):
        weather, harvest = [], []
        for plot in plots:
            weather.append(plot["weather"])
            harvest.append(plot["harvest"])
        soils = torch.tensor([plot["soil"]])
        if not self.last:
            soils = torch.tensor([one["soil"] for one in plots])
        return torch.stack(weather), soils, torch.stack(harvest).unsqueeze(1)


class Harvest(nn.Module):
    def __init__(self):
        super().__init__()
        self.soil = nn.Embedding(SOILS, 24)
        self.weather = nn.Linear(5, 24)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(24, 1))

    def forward(self, weather, soil):
        return self.head(self.weather(weather) + self.soil(soil))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=["none", "last-soil"], default="none")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    collate = Collator(args.fault == "last-soil")
    train = DataLoader(Plots(1600, 1), batch_size=32, shuffle=True, collate_fn=collate)
    held_out = DataLoader(Plots(400, 2), batch_size=100, collate_fn=collate)
    model = Harvest()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(6):
        model.train()
        for weather, soil, harvest in train:
            loss = nn.functional.mse_loss(model(weather, soil), harvest)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.mse_loss(model(x, soil), y).item() for x, soil, y in held_out]
        print(f"epoch {epoch} train {loss.item():.3f} held out {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    main()
