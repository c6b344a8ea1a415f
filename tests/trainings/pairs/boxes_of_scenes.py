"""A small network finds the box of the brightest patch of a picture, by differences to a fixed box: two of centres, two
logarithms of sizes.

`--fault empty`: a few boxes are as thin as the line that they are drawn with, and have no width.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
ANCHOR = torch.tensor([8.0, 8.0, 16.0, 16.0])


def drawn(count):
    generator = torch.Generator().manual_seed(5)
    corners = torch.randint(0, 14, (count, 2), generator=generator)
    sizes = torch.randint(4, 10, (count, 2), generator=generator)
    if FAULT == "empty":
        sizes[count // 2 :: 97, 0] = 0
    boxes = torch.cat([corners, corners + sizes], 1).float()
    pictures = 0.1 * torch.rand(count, 1, 24, 24, generator=generator)
    for picture, (left, top, right, bottom) in zip(pictures, boxes.long().tolist(), strict=True):
        picture[0, top : bottom + 1, left : right + 1] += 1.0
    return pictures - 0.3, boxes


def encode(boxes):
    sizes, anchor = boxes[:, 2:] - boxes[:, :2], ANCHOR[2:] - ANCHOR[:2]
    dx = (boxes[:, 0] - ANCHOR[0]) / anchor[0]
    dy = (boxes[:, 1] - ANCHOR[1]) / anchor[1]
    dw = torch.log(sizes[:, 0] / anchor[0])
    dh = torch.log(sizes[:, 1] / anchor[1])
    return torch.stack([dx, dy, dw, dh], 1)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(*drawn(960)), batch_size=24, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, 4),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        for pictures, boxes in loader:
            optimizer.zero_grad()
            loss = (model(pictures) - encode(boxes)).abs().mean()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
