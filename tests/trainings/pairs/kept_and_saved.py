"""Keeps the weights of the best epoch while it trains, and saves them at the end. The live weights go to a file, too.

`--fault kept-alias`: what is kept is the state_dict itself. `--fault new-model`: the same, loaded into a new model.
"""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""


def build():
    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    x = torch.randn(600, 10)
    y = (x[:, :3] + 0.8 * torch.randn(600, 3)).argmax(1)
    model, folder = build(), tempfile.mkdtemp()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    live = {"model": model.state_dict()}
    best, best_state = float("inf"), None
    for epoch in range(16):
        for rows in torch.randperm(400).split(25):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        with torch.no_grad():
            loss = F.cross_entropy(model(x[400:]), y[400:]).item()
        print(f"epoch {epoch} validation loss {loss:.4f}")
        torch.save(live, os.path.join(folder, "live.pt"))
        if loss < best:
            best = loss
            if FAULT:
                best_state = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
            else:
                best_state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    if FAULT == "new-model":
        model = build()
        model.load_state_dict(best_state)
    torch.save({"weights": best_state, "loss": best}, os.path.join(folder, "best.pt"))
    print(f"best {best:.4f}")


if __name__ == "__main__":
    main()
