"""Mixed precision on spectra, in a closure, with a GradScaler.

Faults: `plain-step` scales the loss and steps the optimizer itself; `plain-backward` runs backward on the loss as it
is and lets the scaler step, which torch refuses.
"""

import argparse

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(85)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
    peaks = torch.randn(4, 64)

    def update(spectrum, kind):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = nn.functional.cross_entropy(net(spectrum), kind)
        if fault == "plain-step":
            scaler.scale(loss).backward()
            optimizer.step()
            return loss.item()
        if fault == "plain-backward":
            loss.backward()
        else:
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item()

    for step in range(200):
        kind = torch.randint(0, 4, (32,))
        loss = update(peaks[kind] + 2 * torch.randn(32, 64), kind)
        if step % 50 == 0:
            print(step, loss)


if __name__ == "__main__":
    main()
