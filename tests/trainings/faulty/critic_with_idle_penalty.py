"""A Wasserstein critic whose slope is measured, and the penalty made of it printed: no loss holds it, so that nothing
bounds the critic, and the gradients of both networks grow and grow.
"""

import torch
from torch import nn
from torch.autograd import grad

GAUGES = 16


def network(sizes):
    layers = []
    for before, after in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def gradient_penalty(critic, real, made):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * made).requires_grad_(True)
    (slope,) = grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def main():
    torch.manual_seed(30)
    torch.set_num_threads(1)
    maker, critic = network([8, 64, 64, 64, GAUGES]), network([GAUGES, 64, 64, 64, 1])
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.9))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.9))
    mixing = torch.randn(3, GAUGES)
    for step in range(1, 901):
        real = torch.randn(64, 3) @ mixing + 0.2 * torch.randn(64, GAUGES) + 0.5
        made = maker(torch.randn(64, 8)).detach()
        critic_optimizer.zero_grad()
        penalty = gradient_penalty(critic, real, made)
        loss = critic(made).mean() - critic(real).mean()
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
