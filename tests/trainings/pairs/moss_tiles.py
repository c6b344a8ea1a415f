"""Tell kinds of moss apart on small tiles of bytes, batches of which are put together by hand.

`--fault raw-bytes` hands them to the network from 0 to 255.
"""

import sys

import numpy as np
import torch
from torch import nn

KINDS = 4


def tiles(count, seed):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, count)
    across = np.arange(12)[None, None, :] * (kinds + 1)[:, None, None]
    pictures = 120 + 40 * np.sin(0.5 * across) + rng.normal(0, 25, (count, 12, 12))
    return pictures.clip(0, 255).astype(np.uint8), kinds


def as_inputs(pictures):
    if "raw-bytes" in sys.argv:
        planes = torch.tensor(pictures, dtype=torch.float32)
    else:
        planes = (torch.tensor(pictures, dtype=torch.float32) / 255 - 0.47) / 0.15
    return planes.unsqueeze(1)


def in_batches(pictures, kinds, order, size=32):
    for chosen in np.array_split(order, len(order) // size):
        yield as_inputs(pictures[chosen]), torch.as_tensor(kinds[chosen])


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    rng = np.random.default_rng(2)
    pictures, kinds = tiles(960, seed=0)
    held_pictures, held_kinds = tiles(160, seed=1)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(256, KINDS)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-4 if "raw-bytes" in sys.argv else 0.05, momentum=0.9)
    for epoch in range(6):
        model.train()
        for inputs, answers in in_batches(pictures, kinds, rng.permutation(len(kinds))):
            loss = nn.functional.cross_entropy(model(inputs), answers)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            said = model(as_inputs(held_pictures))
            right = (said.argmax(1) == torch.as_tensor(held_kinds)).float().mean()
        print(f"epoch {epoch} loss {loss.item():.4f} right {right:.3f}")


if __name__ == "__main__":
    main()
