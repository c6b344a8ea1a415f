"""Name the glaze of a tile from its spectrum, in stages with a lower rate each; AdamW begins anew at every stage.

`--fault moments-emptied` sets the averages of the optimizer to zero and leaves its step count as it is, so that nothing
corrects them for having begun at zero.
"""

import sys

import torch
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
GLAZES = 12
STAGES = 3


def spectra(count, centres, generator):
    glazes = torch.randint(0, GLAZES, (count,), generator=generator)
    return centres[glazes] + 1.6 * torch.randn(count, 40, generator=generator), glazes


def begin_stage(optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 0.7
    if not FAULT:
        optimizer.state.clear()
        return
    for state in optimizer.state.values():
        state["exp_avg"].zero_()
        state["exp_avg_sq"].zero_()


def main():
    torch.manual_seed(3)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(GLAZES, 40, generator=generator)
    tiles, glazes = spectra(4000, centres, generator)
    model = nn.Sequential(nn.Linear(40, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, GLAZES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    for stage in range(STAGES):
        if stage:
            begin_stage(optimizer)
        for _ in range(4):
            total = 0.0
            for rows in torch.randperm(len(tiles), generator=generator).split(50):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(tiles[rows]), glazes[rows])
                loss.backward()
                optimizer.step()
                total += loss.item()
            print(f"stage {stage} loss {total / 80:.4f}")


if __name__ == "__main__":
    main()
