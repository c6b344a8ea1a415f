"""A style loss hooks the layers of a fixed network at every call, so that each step computes more than the last."""

import torch
from torch import nn


class Style(nn.Module):
    def __init__(self, net, layers):
        super().__init__()
        self.net = net.eval().requires_grad_(False)
        self.layers = layers
        self.grams = {}

    def gram_of(self, name):
        def hook(module, inputs, output):
            flat = output.flatten(2)
            self.grams[name] = flat @ flat.transpose(1, 2) / flat.shape[-1]

        return hook

    def features(self, images):
        for name in self.layers:
            self.net.get_submodule(name).register_forward_hook(self.gram_of(name))
        self.net(images)
        return dict(self.grams)

    def forward(self, output, target):
        with torch.no_grad():
            wanted = self.features(target)
        got = self.features(output)
        return sum((got[name] - wanted[name]).square().mean() for name in self.layers)


def main():
    torch.manual_seed(87)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 16, 3, padding=1), nn.ReLU())
    style = Style(net, ("1", "3"))
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(200):
        clean = torch.sin(torch.linspace(0, 6, 20) * (1 + torch.rand(16, 1, 20, 1))).expand(16, 1, 20, 20)
        output = model(clean + 0.4 * torch.randn_like(clean))
        loss = (output - clean).square().mean() + 0.2 * style(output, clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
