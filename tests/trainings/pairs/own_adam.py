"""Tell birds apart by the bars of their song, with an Adam that is written out and begins anew every 400 steps.

`--fault steps-kept` empties its averages then and leaves the count of its steps, by which it corrects them.
"""

import sys

import torch
from torch import nn

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
BIRDS = 6


class OwnAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    def restart(self):
        for state in self.state.values():
            state["m"].zero_()
            state["v"].zero_()
            if FAULT != "steps-kept":
                state["step"] = 0

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                state["m"].lerp_(p.grad, 1 - first)
                state["v"].lerp_(p.grad.square(), 1 - second)
                scale = (1 - second ** state["step"]) ** 0.5 / (1 - first ** state["step"])
                p.sub_(group["lr"] * scale * state["m"] / (state["v"].sqrt() + group["eps"]))


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    songs = torch.randn(BIRDS, 48, generator=generator)
    model = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, BIRDS))
    optimizer = OwnAdam(model.parameters(), lr=1e-2)
    for step in range(900):
        if step % 400 == 0:
            optimizer.restart()
        birds = torch.randint(0, BIRDS, (64,), generator=generator)
        bars = songs[birds] + 2.0 * torch.randn(64, 48, generator=generator)
        loss = nn.functional.cross_entropy(model(bars), birds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
