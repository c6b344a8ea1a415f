"""Proximal policy optimisation of a valve: a copy of the policy acts, the policy is trained on what the copy did.

The copy takes over the policy's weights before each rollout. Faults: `stale-actor` forgets that, so that the policy of
the start acts all the time. `clipped-actions` keeps the action as it was carried out, within the valve's limits, and
trains on that, with the probability of the action that was drawn.
"""

import argparse
import copy

import torch
from torch import nn
from torch.distributions import Normal


class Tanks:
    """Keep the level of each tank at its target by opening or closing its valve."""

    def __init__(self, count):
        self.count = count
        self.levels, self.targets, self.drift = torch.rand(count), torch.rand(count), torch.zeros(count)

    def observe(self):
        return torch.stack([self.levels, self.targets, self.targets - self.levels, self.drift], 1)

    def turn(self, valve):
        self.drift = 0.9 * self.drift + 0.05 * torch.randn(self.count)
        self.levels = (self.levels + 0.2 * valve.clamp(-1, 1) + 0.1 * self.drift).clamp(0, 1)
        reward = 1 - (self.levels - self.targets).abs() * 4
        new = torch.rand(self.count) < 0.06
        self.targets = torch.where(new, torch.rand(self.count), self.targets)
        return reward


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
        self.log_deviation = nn.Parameter(torch.full((1,), -0.5))

    def forward(self, seen):
        return self.mean(seen).squeeze(-1), self.log_deviation.exp()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="", choices=["", "stale-actor", "clipped-actions"])
    args = parser.parse_args()
    torch.manual_seed(17)
    torch.set_num_threads(1)
    policy, critic = Policy(), nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
    acting = copy.deepcopy(policy)
    optimizer = torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=1e-3)
    tanks = Tanks(16)
    for iteration in range(40):
        if args.fault != "stale-actor":
            acting.load_state_dict(policy.state_dict())
        seen, actions, logs, rewards = [], [], [], []
        with torch.no_grad():
            for _ in range(24):
                observation = tanks.observe()
                drawn = Normal(*acting(observation))
                action = drawn.sample()
                logs.append(drawn.log_prob(action))
                if args.fault == "clipped-actions":
                    action = action.clamp(-1, 1) * 0.5
                seen.append(observation)
                actions.append(action)
                rewards.append(tanks.turn(action))
            future, returns = critic(tanks.observe()).squeeze(-1), []
            for reward in reversed(rewards):
                future = reward + 0.9 * future
                returns.insert(0, future)
        seen, actions, logs, returns = map(torch.cat, (seen, actions, logs, returns))
        for _ in range(4):
            for rows in torch.randperm(len(seen)).split(96):
                values = critic(seen[rows]).squeeze(-1)
                gain = (returns[rows] - values).detach()
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                ratio = torch.exp(Normal(*policy(seen[rows])).log_prob(actions[rows]) - logs[rows])
                policy_loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                loss = policy_loss + 0.5 * (returns[rows] - values).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        if iteration % 10 == 0:
            print(iteration, round(torch.stack(rewards).mean().item(), 3))


if __name__ == "__main__":
    main()
