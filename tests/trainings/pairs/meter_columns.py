"""Tell rising from falling curves on a plotter's paper: a convolution over the picture, a recurrence over its columns.

Faults: `samples-as-columns` gives the columns first to a recurrence with batch_first=True; `patches-first` attends with
torch's usual layout, [positions, samples, width], to patches that come as [samples, positions, width]. (`columns-first`
is no fault: the recurrence has the layout that it is given.)
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HEIGHT, COLUMNS, WIDTH = 8, 24, 16


class Reader(nn.Module):
    def __init__(self, fault):
        super().__init__()
        self.fault = fault
        self.look = nn.Sequential(nn.Conv2d(1, WIDTH, (HEIGHT, 3), padding=(0, 1)), nn.BatchNorm2d(WIDTH), nn.ReLU())
        if fault == "patches-first":
            self.attend = nn.MultiheadAttention(WIDTH, 2)
        else:
            self.along = nn.GRU(WIDTH, WIDTH, batch_first=fault == "samples-as-columns")
        self.leave = nn.Linear(WIDTH, 2)

    def forward(self, pictures):
        columns = self.look(pictures).squeeze(2)
        if self.fault == "patches-first":
            patches = F.avg_pool1d(columns, 2).transpose(1, 2)
            return self.leave(self.attend(patches, patches, patches)[0].mean(1))
        return self.leave(self.along(columns.permute(2, 0, 1))[0].mean(0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    y = torch.randint(0, 2, (480,))
    place = torch.linspace(1, HEIGHT - 2, COLUMNS)[None].repeat(480, 1)
    place = torch.where(y[:, None] == 1, place, place.flip(1)) + 0.7 * torch.randn(480, COLUMNS)
    pictures = torch.exp(-((torch.arange(HEIGHT)[None, :, None] - place[:, None]) ** 2))[:, None]
    loader = DataLoader(TensorDataset(pictures, y), batch_size=24, shuffle=True)
    model = Reader(args.fault)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        for given, targets in loader:
            loss = F.cross_entropy(model(given), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
