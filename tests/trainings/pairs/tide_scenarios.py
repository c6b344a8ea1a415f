"""Draw scenarios of tides with a Wasserstein critic whose slope is held near one by a penalty.

Fault `constant-penalty` takes the slope without a graph of it: the penalty is a number that nothing can lower, so that
nothing bounds the critic, and the gradients of both networks grow and grow.
"""

import argparse

import torch
from torch import nn
from torch.autograd import grad

GAUGES = 16


def network(sizes):
    layers = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(30)
    torch.set_num_threads(1)
    maker, critic = network([8, 96, 96, GAUGES]), network([GAUGES, 96, 96, 1])
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    mixing = torch.randn(3, GAUGES)
    for step in range(1, 1201):
        real = torch.randn(64, 3) @ mixing + 0.2 * torch.randn(64, GAUGES) + 0.5
        made = maker(torch.randn(64, 8)).detach()
        share = torch.rand(64, 1)
        between = (share * real + (1 - share) * made).requires_grad_(True)
        if args.fault == "constant-penalty":
            slope = grad(critic(between).sum(), between, retain_graph=True)[0]
        else:
            slope = grad(critic(between).sum(), between, create_graph=True)[0]
        penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
        loss = critic(made).mean() - critic(real).mean() + penalty
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        if step % 3 == 0:
            maker_loss = -critic(maker(torch.randn(64, 8))).mean()
            maker_optimizer.zero_grad()
            maker_loss.backward()
            maker_optimizer.step()
        if step % 100 == 0:
            print(f"step {step} critic {loss.item():.3f} penalty {penalty.item():.3f}")


if __name__ == "__main__":
    main()
