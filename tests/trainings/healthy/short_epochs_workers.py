"""Spoken digits, sort of: two loader workers that are started again in each of ten short epochs, real work per step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __init__(self, count, seed):
        self.seed, self.count = seed, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 100003 + i)
        digit = int(torch.randint(0, 10, (1,), generator=g))
        time = torch.linspace(0, 1, 400)
        return torch.sin(6.28 * (5 + 3 * digit) * time + torch.rand(1, generator=g)) + 0.5 * torch.randn(
            400, generator=g
        ), digit


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    loader = DataLoader(Waves(640, 1), batch_size=16, shuffle=True, num_workers=2)
    held_out = DataLoader(Waves(128, 2), batch_size=64)
    net = nn.Sequential(
        nn.Unflatten(1, (1, 400)),
        nn.Conv1d(1, 32, 25, 2),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.Conv1d(32, 48, 15, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(4),
        nn.Flatten(),
        nn.Linear(192, 10),
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    for epoch in range(10):
        net.train()
        for wave, digit in loader:
            loss = nn.functional.cross_entropy(net(wave), digit)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            right = sum((net(wave).argmax(1) == digit).sum().item() for wave, digit in held_out)
        print(f"epoch {epoch} loss {loss.item():.3f} right {right / 128:.2f}")


if __name__ == "__main__":
    main()
