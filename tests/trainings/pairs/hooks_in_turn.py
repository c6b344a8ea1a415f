"""Predict the flow of a river from gauges upstream, in mixed precision, by a trainer that calls its hooks in turn.

Fault `clip-first` lists the hook that clips before the one that unscales, so that gradients are clipped while they are
still multiplied by the loss scale.
"""

import argparse

import torch
from torch import nn


class Clip:
    def __init__(self, limit):
        self.limit = limit

    def before_step(self, trainer):
        nn.utils.clip_grad_norm_(trainer.model.parameters(), self.limit)


class Norms:
    def __init__(self):
        self.seen = []

    def before_step(self, trainer):
        trainer.scaler.unscale_(trainer.optimizer)
        self.seen.append(nn.utils.get_total_norm([one.grad for one in trainer.model.parameters()]).item())


class Trainer:
    def __init__(self, hooks):
        self.model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)
        self.hooks = hooks

    def step(self, gauges, flow):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            guess = self.model(gauges)
        loss = nn.functional.mse_loss(guess.float().squeeze(1), flow)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        for hook in self.hooks:
            hook.before_step(self)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(27)
    torch.set_num_threads(1)
    hooks = [Norms(), Clip(1.0)]
    trainer = Trainer(hooks[::-1] if args.fault == "clip-first" else hooks)
    weight = torch.randn(12)
    for step in range(1, 401):
        gauges = torch.randn(64, 12)
        loss = trainer.step(gauges, torch.tanh(gauges @ weight / 3) + 0.1 * torch.randn(64))
        if step % 50 == 0:
            print(f"step {step} loss {loss:.4f}")


if __name__ == "__main__":
    main()
