"""One worker parses text records in pure Python; the network waits for it."""

import json
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, count):
        rng = random.Random(13)
        self.lines = [
            json.dumps({"values": [rng.gauss(0, 1) for _ in range(900)], "kind": k % 4}) for k in range(count)
        ]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        record = json.loads(self.lines[i])
        values = record["values"]
        smooth = [sum(values[max(0, k - 8) : k + 8]) / 16 + 0.3 * record["kind"] for k in range(len(values))]
        return torch.tensor(smooth[::30]), record["kind"]


def main():
    torch.manual_seed(13)
    torch.set_num_threads(1)
    loader = DataLoader(Records(960), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    net = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(4):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
