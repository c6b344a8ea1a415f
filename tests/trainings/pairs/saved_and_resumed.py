"""A regression that saves after each epoch, and goes on from its file once, as after a restart.

`--fault early-copy`: what is saved is a copy that was made before the training. `--fault head-forgotten`: the head is
trained and not saved. `--fault fresh-optimizer`: the optimizer's state is saved and not restored.
"""

import copy
import os
import sys
import tempfile

import torch
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    x = torch.randn(320, 10)
    y = x[:, 0] * x[:, 1] + 0.1 * torch.randn(320)
    trunk, head = nn.Sequential(nn.Linear(10, 32), nn.Tanh()), nn.Linear(32, 1)
    parameters = [*trunk.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=3e-3)
    kept = copy.deepcopy(trunk), copy.deepcopy(head)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    for epoch in range(6):
        for rows in torch.randperm(320).split(16):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(head(trunk(x[rows])).squeeze(1), y[rows])
            loss.backward()
            optimizer.step()
        saved_trunk, saved_head = kept if FAULT == "early-copy" else (trunk, head)
        state = {"trunk": saved_trunk.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        if FAULT != "head-forgotten":
            state["head"] = saved_head.state_dict()
        torch.save(state, path)
        if epoch == 2 and FAULT in ("", "fresh-optimizer"):
            checkpoint = torch.load(path)
            trunk.load_state_dict(checkpoint["trunk"])
            head.load_state_dict(checkpoint["head"])
            optimizer = torch.optim.AdamW(parameters, lr=3e-3)
            if FAULT != "fresh-optimizer":
                optimizer.load_state_dict(checkpoint["optimizer"])
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
