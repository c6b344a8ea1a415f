"""Mixed precision with float16 autocast and a gradient scaler, clipping after unscaling.

Faults: `loss-factor` multiplies the loss so far that gradients overflow at every scale; `no-scaler` trains in
float16 without scaling; `clip-before-unscale` clips gradients that still carry the scale; `no-update` never updates
the scaler; `small-scale` begins with a scale that is far too small, and lets it grow too rarely; `loss-alone` opens the
autocast region around the loss only; `inner-region` switches it off around the model; `in-place` adds each product onto a tensor of biases, which autocast
does not know. `float32-head` does so in the small last layer alone, and is healthy.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Lean(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out, width) / width**0.5)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x):
        out = self.bias.repeat(len(x), 1)
        return out.addmm_(x.float(), self.weight.t())


class Net(nn.Module):
    def __init__(self, half=True, width=96, layer=nn.Linear, last=nn.Linear):
        super().__init__()
        self.half = half
        self.body = nn.Sequential(layer(32, width), nn.ReLU(), layer(width, width), nn.ReLU())
        self.head = last(width, 10)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.half and torch.is_autocast_enabled("cpu")):
            return self.head(self.body(x))


def main(args):
    torch.manual_seed(2)
    torch.set_num_threads(1)
    x = torch.randn(4000, 32)
    y = (x @ torch.randn(32, 10) + torch.randn(4000, 10)).argmax(1)
    loader = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    layer = Lean if args.fault == "in-place" else nn.Linear
    last = Lean if args.fault in ("in-place", "float32-head") else nn.Linear
    model = Net(half=args.fault != "inner-region", layer=layer, last=last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    settings = {"init_scale": 2.0**-18, "growth_interval": 2000} if args.fault == "small-scale" else {}
    scaler = torch.amp.GradScaler("cpu", enabled=args.fault != "no-scaler", **settings)
    step = 0
    for epoch in range(args.epochs):
        for xb, yb in loader:
            optimizer.zero_grad(set_to_none=True)
            if args.fault == "loss-alone":
                scores = model(xb)
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = criterion(scores, yb)
            else:
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = criterion(model(xb), yb)
            if args.fault == "loss-factor":
                loss = loss * 1e9
            scaler.scale(loss).backward()
            if args.fault != "clip-before-unscale":
                scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
            scaler.step(optimizer)
            if args.fault != "no-update":
                scaler.update()
            step += 1
        print(f"epoch {epoch + 1} step {step} loss {loss.item():.4g} scale {scaler.get_scale():.4g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--fault", default="")
    main(parser.parse_args())
