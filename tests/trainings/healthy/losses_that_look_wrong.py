"""Losses whose arguments look odd and are right: pairwise quantile differences, scalar targets, a contrastive loss
that normalises both ways, ranking within a list, soft targets, log-probabilities given to cross_entropy, and scores
that happen to be small and positive.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def quantile_loss(net, x):
    wanted = (x[:, :1] + torch.randn(len(x), 16)).detach()
    given = net(x)[:, :16]
    error = F.smooth_l1_loss(
        given.unsqueeze(2).expand(-1, -1, 16), wanted.unsqueeze(1).expand(-1, 16, -1), reduction="none"
    )
    level = (torch.arange(16) + 0.5) / 16
    sign = (wanted.unsqueeze(1) < given.unsqueeze(2)).float()
    return ((level[None, :, None] - sign).abs() * error).mean()


def pairwise_loss(net, x):
    value = net(x)[:, 0]
    return F.l1_loss(value[:, None], x[None, :, 0].detach(), reduction="none").diagonal().mean()


def adversarial_like(net, x):
    return F.mse_loss(net(x), torch.ones(1)) + F.mse_loss(net(x), torch.tensor(0.5))


def contrastive(net, x):
    one, other = F.normalize(net(x), dim=1), F.normalize(net(x + 0.1 * torch.randn_like(x)), dim=1)
    alike, index = one @ other.T / 0.1, torch.arange(len(x))
    return F.nll_loss(F.log_softmax(alike, dim=0), index) + F.nll_loss(F.log_softmax(alike, dim=1), index)


def ranking(net, x):
    relevance = F.softmax(x[:, :1], dim=0)
    return F.kl_div(F.log_softmax(net(x)[:, :1], dim=0), relevance, reduction="sum")


def soft_targets(net, x):
    scores = net(x)
    return F.cross_entropy(scores, F.softmax(x.repeat(1, 2), dim=1)) + F.cross_entropy(
        F.log_softmax(scores, dim=1), x.repeat(1, 2).argmax(1)
    )


def mostly_yes(net, x):
    wanted = (torch.rand(len(x)) < 0.6).float()
    return F.binary_cross_entropy_with_logits(0.4 + 0.01 * net(x)[:, 0].tanh(), wanted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(67)
    torch.set_num_threads(1)
    for loss_of in (quantile_loss, pairwise_loss, adversarial_like, contrastive, ranking, soft_targets, mostly_yes):
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(args.steps):
            loss = loss_of(net, torch.randn(20, 8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(loss_of.__name__, round(loss.item(), 4))


if __name__ == "__main__":
    main()
