"""The tide of the next hour from a window of noisy gauges; noise is drawn anew for every sample.

Faults: `past-call` calls forward itself, past the hooks; `numpy-unseeded` seeds torch and not NumPy, which draws the noise.
"""

import argparse

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Gauges(Dataset):
    def __init__(self, count):
        self.start = torch.rand(count) * 100

    def __len__(self):
        return len(self.start)

    def __getitem__(self, index):
        tide = torch.sin(self.start[index] + 0.5 * torch.arange(17))
        noise = torch.from_numpy(np.random.normal(0, 0.05, 16)).float()
        return tide[:16] + noise, tide[16:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "past-call", "numpy-unseeded"])
    args = parser.parse_args()
    torch.manual_seed(9)
    if args.fault != "numpy-unseeded":
        np.random.seed(9)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
    call = model.forward if args.fault == "past-call" else model
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(4):
        for x, y in DataLoader(Gauges(960), batch_size=16, shuffle=True):
            loss = nn.functional.mse_loss(call(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
