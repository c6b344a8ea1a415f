"""Train a classifier of short signals whose features are computed, slowly, for every sample again in every epoch.

The fault: the spectrogram is made in `__getitem__`, in the training process itself (num_workers is 0), and takes
several times as long as the training step that waits for it.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Tones(Dataset):
    """Noisy tones of one of four pitches; a sample is a spectrogram [32, 24]."""

    def __init__(self, samples):
        self.labels = torch.randint(0, 4, (samples,))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        label = self.labels[index]
        generator = torch.Generator().manual_seed(index)
        time = torch.arange(2048) / 2048
        signal = torch.sin(2 * math.pi * (60 + 25 * label) * time) + torch.randn(2048, generator=generator)
        windows = signal.unfold(0, 256, 78)
        # A discrete Fourier transform by its definition: right, and as slow as it looks.
        angles = -2 * math.pi * torch.outer(torch.arange(128), torch.arange(256)) / 256
        real, imaginary = windows @ torch.cos(angles).T, windows @ torch.sin(angles).T
        power = (real.square() + imaginary.square()).log1p()
        return power.T.reshape(32, 4, -1).mean(1), label


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Tones(640), batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, 4))
    model(torch.zeros(1, 32, 23))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for spectrograms, labels in loader:
            loss = F.cross_entropy(model(spectrograms), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
