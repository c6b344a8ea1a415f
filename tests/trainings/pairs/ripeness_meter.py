"""Is the fruit ripe? Two optimizers around SGD: Lookahead, whose slow weights follow, and sharpness-aware minimisation.

Both call themselves optimizers of torch and have parameter groups, and both have SGD step within their own step.
`sharpness` is the second one, healthy. Faults: `never-cleared` leaves out zero_grad with Lookahead,
`sharpness-never-cleared` with the other.
"""

import argparse

import torch
from torch import nn


class Lookahead(torch.optim.Optimizer):
    def __init__(self, fast, every=5, share=0.5):
        parameters = [p for group in fast.param_groups for p in group["params"]]
        super().__init__(parameters, {"every": every, "share": share})
        self.fast, self.made = fast, 0
        self.slow = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.fast.step(closure)
        self.made += 1
        for group in self.param_groups:
            if self.made % group["every"] == 0:
                for p, slow in zip(group["params"], self.slow):
                    slow.lerp_(p, group["share"])
                    p.copy_(slow)
        return loss


class SharpnessAware(torch.optim.Optimizer):
    def __init__(self, parameters, clears, radius=0.05, **options):
        super().__init__(parameters, {"radius": radius, **options})
        self.base = torch.optim.SGD(self.param_groups, **options)
        self.param_groups, self.clears = self.base.param_groups, clears

    @torch.no_grad()
    def step(self, closure):
        held = [p for group in self.param_groups for p in group["params"]]
        norm = torch.stack([p.grad.norm() for p in held]).norm()
        ways = [p.grad * (self.param_groups[0]["radius"] / (norm + 1e-12)) for p in held]
        for p, way in zip(held, ways):
            p.add_(way)
        if self.clears:
            self.zero_grad()
        with torch.enable_grad():
            loss = closure()
        for p, way in zip(held, ways):
            p.sub_(way)
        self.base.step()
        return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    fault = parser.parse_args().fault
    torch.manual_seed(4)
    torch.set_num_threads(1)
    x = torch.randn(3000, 16)
    y = (x[:, :4].sum(1) + 0.5 * torch.randn(3000) > 0).long()
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 2))
    criterion = nn.CrossEntropyLoss()
    clears, sharpness = "never-cleared" not in fault, fault.startswith("sharpness")
    if sharpness:
        optimizer = SharpnessAware(model.parameters(), clears, lr=0.02, momentum=0.9)
    else:
        optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9))

    def closure():
        loss = criterion(model(xb), yb)
        loss.backward()
        return loss

    for epoch in range(4):
        order = torch.randperm(len(x))
        for i in range(0, len(x), 50):
            xb, yb = x[order[i : i + 50]], y[order[i : i + 50]]
            if clears:
                optimizer.zero_grad()
            loss = criterion(model(xb), yb)
            loss.backward()
            optimizer.step(closure) if sharpness else optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
