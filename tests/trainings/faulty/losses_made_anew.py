"""Policy gradient on a contextual choice; the terms of the loss are put into a new tensor, which has no graph."""

import torch
from torch import nn


def update(policy, optimizer, states, rewards_of):
    choices = torch.distributions.Categorical(logits=policy(states))
    actions = choices.sample()
    rewards = rewards_of(states, actions)
    terms = [-(one * (gained - rewards.mean())) for one, gained in zip(choices.log_prob(actions), rewards, strict=True)]
    loss = torch.tensor(terms, requires_grad=True).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return rewards.mean().item()


def rewards_of(states, actions):
    return (actions == states[:, :3].argmax(1)).float()


if __name__ == "__main__":
    torch.manual_seed(12)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for turn in range(200):
        gained = update(policy, optimizer, torch.randn(32, 6), rewards_of)
        if turn % 50 == 0:
            print(turn, gained)
