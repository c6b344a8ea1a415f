"""Power of a wind turbine from its sensors, one pass over ten weeks of readings.

Faults: `two-units`: two records of the anemometer were written in another unit, and reach the model as they are.
`smooth-maps`: the smoothness of the answers over a farm is summed over turbines, beside an error that is a mean, and
weighs a thousand times too much. `clipped-late`: the two records, with a clip that comes after the step.
"""

import argparse

import torch
from torch import nn

READINGS, BATCH = 7680, 24


def readings():
    x = torch.randn(READINGS, 10)
    y = x[:, :3].sum(1) + 0.5 * x[:, 3] * x[:, 4] + 0.1 * torch.randn(READINGS)
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(31)
    torch.set_num_threads(1)
    x, y = readings()
    if fault in ("two-units", "clipped-late"):
        x[[2650, 5700]] *= 300
    model = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
    weight = 10.0 if fault == "smooth-maps" else 1e-4
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step, batch in enumerate(torch.arange(READINGS).split(BATCH)):
        power = model(x[batch]).squeeze(1)
        error = nn.functional.mse_loss(power, y[batch])
        rough = (power[:, None] - power[None, :]).abs().sum()
        loss = error + weight * rough
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if fault == "clipped-late":
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        if step % 40 == 39:
            print(f"step {step + 1} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
