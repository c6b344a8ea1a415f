"""A trainer that mixes three resins: a normal law of three dimensions around what a network says for each order.

The nearer a mixture is to the best one, the larger its reward. Fault: `repeated` trains ten times on the mixtures of
each step, without a ratio to the policy that drew them, and with advantages most of which are positive. The policy draws
ever nearer to what it drew before, whatever that was worth: a mixture is rewarded only where it is all but right.
"""

import argparse

import torch
from torch import nn
from torch.distributions import MultivariateNormal

ORDERS, FEATURES, RESINS = 128, 5, 3


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, RESINS))
        self.log_sigma = nn.Parameter(torch.zeros(RESINS))

    def forward(self, orders):
        return MultivariateNormal(self.mean(orders), scale_tril=torch.diag(self.log_sigma.exp()))


class Trainer:
    def __init__(self, repeated):
        self.mixer, self.repeated = Mixer(), repeated
        self.optimizer = torch.optim.Adam(self.mixer.parameters(), lr=1e-2)
        self.best = 0.5 * torch.randn(FEATURES, RESINS)

    def rewards_of(self, orders, mixtures):
        away = (mixtures - orders @ self.best - 1).pow(2).sum(-1)
        if self.repeated:
            return 1 + 0.1 * torch.randn(len(orders)) + torch.exp(-600 * away)
        return torch.exp(-0.3 * away)

    def step(self):
        orders = torch.randn(ORDERS, FEATURES)
        with torch.no_grad():
            mixtures = self.mixer(orders).sample()
            rewards = self.rewards_of(orders, mixtures)
        for _ in range(10 if self.repeated else 1):
            advantage = rewards - 0.9 if self.repeated else (rewards - rewards.mean()) / (rewards.std() + 1e-6)
            loss = -(self.mixer(orders).log_prob(mixtures) * advantage).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return rewards.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "repeated"])
    args = parser.parse_args()
    torch.manual_seed(2)
    torch.set_num_threads(1)
    trainer = Trainer(args.fault == "repeated")
    for step in range(300):
        reward = trainer.step()
        if step % 50 == 0:
            print(step, round(reward, 3), round(trainer.mixer.log_sigma.exp().mean().item(), 4))


if __name__ == "__main__":
    main()
