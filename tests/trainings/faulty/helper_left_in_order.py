"""Classifier of tones that are stored class after class. The script's own function makes both loaders, and shuffles if it
is told to; the call for the training data does not say so.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def tones(count, generator):
    kinds = torch.arange(6).repeat_interleave(count)
    time = torch.linspace(0, 1, 48)
    pitch = 3.0 + 2.0 * kinds[:, None] + 0.3 * torch.randn(len(kinds), 1, generator=generator)
    waves = torch.sin(2 * torch.pi * (pitch * time + torch.rand(len(kinds), 1, generator=generator)))
    return TensorDataset(waves + 0.3 * torch.randn(waves.shape, generator=generator), kinds)


def loader_of(
    dataset,
    size,
    shuffle=False,
):
    return DataLoader(dataset, size, shuffle=shuffle)


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(6)
    training = loader_of(tones(80, generator), 16)
    validation = loader_of(tones(20, generator), 60)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(8):
        model.train()
        for wave, kind in training:
            loss = nn.functional.cross_entropy(model(wave), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            hits = sum(int((model(wave).argmax(1) == kind).sum()) for wave, kind in validation)
        print(f"epoch {epoch + 1}  last loss {loss.item():.3f}  accuracy {hits / 120:.3f}")


if __name__ == "__main__":
    main()
