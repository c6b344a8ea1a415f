"""A variational autoencoder of heartbeats that draws its codes in training and takes their mean in validation.

The fault `summed-rate` adds up the divergence from the prior over the whole batch, beside a mean over samples and
points: the codes then say nothing. In training the decoder still follows what is drawn, and its output differs from
beat to beat; in validation it is one and the same.
"""

import argparse

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional

POINTS, CODES, BATCH = 80, 6, 50


def heartbeats(count, generator):
    time = torch.linspace(0, 1, POINTS)
    place = 0.35 + 0.3 * torch.rand(count, 1, generator=generator)
    width = 0.03 + 0.04 * torch.rand(count, 1, generator=generator)
    height = 0.6 + 0.8 * torch.rand(count, 1, generator=generator)
    wave = height * torch.exp(-(((time - place) / width) ** 2)) + 0.3 * height * torch.sin(6.28 * (time - place))
    return wave + 0.03 * torch.randn(count, POINTS, generator=generator)


def build():
    encoder = nn.Sequential(nn.Linear(POINTS, 64), nn.Tanh(), nn.Linear(64, 2 * CODES))
    decoder = nn.Sequential(nn.Linear(CODES, 64), nn.Tanh(), nn.Linear(64, POINTS))
    return nn.ModuleDict({"encoder": encoder, "decoder": decoder})


def elbo_terms(parts, beats):
    mean, spread = parts["encoder"](beats).chunk(2, dim=1)
    posterior = Normal(mean, functional.softplus(spread) + 1e-4)
    codes = posterior.rsample() if parts.training else posterior.mean
    rate = kl_divergence(posterior, Normal(torch.zeros_like(mean), torch.ones_like(mean)))
    return functional.mse_loss(parts["decoder"](codes), beats), rate


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "summed-rate"])
    args = parser.parse_args()
    torch.manual_seed(12)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(3)
    trained, held_out = heartbeats(2000, generator), heartbeats(400, generator)
    parts = build()
    optimizer = torch.optim.AdamW(parts.parameters(), lr=3e-3)

    def loss_of(beats):
        error, rate = elbo_terms(parts, beats)
        return error + (rate.sum() if args.fault == "summed-rate" else rate.sum(1).mean() / (4 * POINTS))

    for epoch in range(16):
        parts.train()
        for chosen in torch.randperm(len(trained)).split(BATCH):
            loss = loss_of(trained[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        parts.eval()
        with torch.no_grad():
            validated = sum(loss_of(some).item() for some in held_out.split(100)) / 4
        print(f"{epoch} loss {loss.item():.4f} validation {validated:.4f}")


if __name__ == "__main__":
    main()
