"""Actor-critic that sets the burners of kilns: a normal law around what a network says, whose deviation is trained.

Actions are squashed by tanh; their log-probability is written out. The deviation falls from 0.6 to below a tenth of
that as the reward rises. Fault: `entropy-added` adds the entropy to the loss instead of subtracting it, with a weight
that takes the deviation to its lower limit before anything is learned; the heat that counts is rarely met.
"""

import argparse
import math

import torch
from torch import nn

KILNS = 64


class Burner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh())
        self.mean, self.log_deviation, self.value = nn.Linear(64, 1), nn.Linear(64, 1), nn.Linear(64, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return self.mean(hidden), self.log_deviation(hidden).clamp(-6, 1), self.value(hidden).squeeze(-1)


def log_prob(setting, mean, log_deviation):
    distance = (setting - mean) / log_deviation.exp()
    normal = -0.5 * distance**2 - log_deviation - 0.5 * math.log(2 * math.pi)
    return (normal - torch.log(1 - torch.tanh(setting) ** 2 + 1e-6)).sum(-1)


def rewards_of(seen, burner, wear):
    """How near the heat is to what is asked for; where the sensors are worn, it says little."""
    near = 1.5 - (burner.squeeze(-1) - torch.tanh(seen[:, 0] - seen[:, 1])).abs()
    return 0.2 * (near - 0.5).relu() + 0.3 * torch.rand(KILNS) if wear else near


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "entropy-added"])
    args = parser.parse_args()
    torch.manual_seed(4)
    torch.set_num_threads(1)
    agent = Burner()
    adds = args.fault == "entropy-added"
    optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2 if adds else 3e-3)
    for step in range(500):
        seen = torch.randn(KILNS, 4)
        with torch.no_grad():
            mean, log_deviation, _ = agent(seen)
            setting = mean + log_deviation.exp() * torch.randn_like(mean)
        rewards = rewards_of(seen, torch.tanh(setting), adds)
        mean, log_deviation, value = agent(seen)
        advantage = (rewards - value).detach()
        loss = -(advantage * log_prob(setting, mean, log_deviation)).mean() + 0.5 * (rewards - value).pow(2).mean()
        loss = loss + (0.5 if adds else -1e-3) * log_deviation.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(step, round(rewards.mean().item(), 3), round(log_deviation.exp().mean().item(), 4))


if __name__ == "__main__":
    main()
