"""Train the operator of a lift by REINFORCE: which of five floors to go to next, by where people wait.

Losses are added up step by step, as tutorials do it; nothing computes the entropy of the policy, and rewards are printed
alone. Faults: `rate` is a hundred times the learning rate, and the operator goes to one floor whoever waits. `bandit` is
no fault: the same people wait every time, so that the policy becomes certain, and is right.
"""

import argparse
import random

import torch
from torch import nn
from torch.distributions import Categorical

FLOORS, CALLS = 5, 12


class House:
    """People wait at one floor, now and then at a second one: who is fetched there is a reward."""

    def __init__(self, same):
        self.same = same

    def wait(self):
        self.floor = 3 if self.same else random.randrange(FLOORS)
        seen = torch.zeros(FLOORS)
        seen[self.floor] = 1.0
        return seen + 0.1 * torch.randn(FLOORS)

    def go(self, floor):
        return float(floor == self.floor) + random.gauss(0, 0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "rate", "bandit"])
    args = parser.parse_args()
    random.seed(4)
    torch.manual_seed(4)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(FLOORS, 24), nn.ReLU(), nn.Linear(24, FLOORS))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1.0 if args.fault == "rate" else 0.01)
    house, usual = House(args.fault == "bandit"), 0.2
    for day in range(300):
        log_probs, rewards = [], []
        for _ in range(CALLS):
            law = Categorical(logits=policy(house.wait()))
            floor = law.sample()
            log_probs.append(law.log_prob(floor))
            rewards.append(house.go(floor.item()))
        losses = [-log_prob * (reward - usual) for log_prob, reward in zip(log_probs, rewards, strict=True)]
        loss = torch.stack(losses).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fetched = sum(rewards) / CALLS
        usual = 0.9 * usual + 0.1 * fetched
        if day % 50 == 49:
            print(f"day {day + 1}: fetched {fetched:.2f}, entropy {law.entropy().item():.3f}")


if __name__ == "__main__":
    main()
