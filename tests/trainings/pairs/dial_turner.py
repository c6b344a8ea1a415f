"""Turn a dial to where a gauge asks for, by a policy of one number that is rewarded for being near.

Fault: `column` leaves the log-probabilities as [rounds, 1], so that each meets the advantages of all rounds. (`table` is
no fault: two dials, each of which has an advantage of its own.)
"""

import argparse

import torch
from torch import nn
from torch.distributions import Normal

ROUNDS = 64


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(6)
    torch.set_num_threads(1)
    dials = 2 if args.fault == "table" else 1
    policy = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, dials))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for step in range(300):
        gauge = torch.randn(ROUNDS, 3)
        turned = Normal(policy(gauge), 0.3)
        action = turned.sample()
        miss = (action - gauge.sum(1, keepdim=True)).abs()
        advantage = -(miss if args.fault == "table" else miss.squeeze(-1))
        advantage = (advantage - advantage.mean(0)) / (advantage.std(0) + 1e-6)
        logs = turned.log_prob(action)
        if not args.fault:
            logs = logs.sum(-1)
        weighed = logs * advantage
        loss = -weighed.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, miss.mean().item())


if __name__ == "__main__":
    main()
