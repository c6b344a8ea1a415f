"""A record of the data set cannot be parsed; the error is raised inside a loader worker."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, n):
        generator = torch.Generator().manual_seed(0)
        rows = torch.randn(n, 6, generator=generator)
        self.lines = [",".join(f"{v:.4f}" for v in row) + f",{int(row[0] > row[1])}" for row in rows.tolist()]
        self.lines[1771] = "0.1,0.2,n/a,0.4,0.5,0.6,1"

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        fields = [float(field) for field in self.lines[index].split(",")]
        return torch.tensor(fields[:-1]), int(fields[-1])


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    loader = DataLoader(Lines(2000), batch_size=20, shuffle=True, num_workers=1)
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(4):
        for i, (x, y) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                print(f"epoch {epoch} batch {i} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
