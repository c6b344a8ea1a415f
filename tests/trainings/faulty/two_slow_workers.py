"""Speech-command classifier; two loader workers that each wait for a slow disk, too few to keep up with the
training.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        time.sleep(0.006)
        rng = torch.Generator().manual_seed(index)
        label = index % 4
        t = torch.arange(256) / 256
        wave = torch.sin(6.2832 * (4 + 3 * label) * t + torch.rand(1, generator=rng) * 6.2832)
        return wave.unsqueeze(0) + 0.5 * torch.randn(1, 256, generator=rng), label


def main():
    torch.manual_seed(24)
    torch.set_num_threads(1)
    loader = DataLoader(Clips(640), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv1d(1, 8, 9, stride=4),
        nn.ReLU(),
        nn.Conv1d(8, 16, 9, stride=4),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(16, 4),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(2):
        for i, (wave, label) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(wave), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 10 == 9:
                print(f"epoch {epoch} batch {i + 1}/{len(loader)} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
