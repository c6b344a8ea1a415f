"""Proximal policy optimisation on a noisy bandit-like walk: rollouts without gradients, several passes over each."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical


class Walk:
    """Stay near the moving target; nine positions, three moves."""

    def __init__(self, count):
        self.position = torch.randint(0, 9, (count,))
        self.target = torch.randint(0, 9, (count,))

    def observe(self):
        return torch.cat([F.one_hot(self.position, 9), F.one_hot(self.target, 9)], 1).float()

    def move(self, action):
        self.position = (self.position + action - 1).clamp(0, 8)
        reward = -(self.position - self.target).abs().float() / 8
        jump = torch.rand(len(action)) < 0.05
        self.target = torch.where(jump, torch.randint(0, 9, (len(action),)), self.target)
        return reward


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(18, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(-1)


def rollout(agent, walk, steps=16):
    seen, actions, logs, values, rewards = [], [], [], [], []
    with torch.no_grad():
        for _ in range(steps):
            observation = walk.observe()
            distribution, value = agent(observation)
            action = distribution.sample()
            seen.append(observation)
            actions.append(action)
            logs.append(distribution.log_prob(action))
            values.append(value)
            rewards.append(walk.move(action))
        future = agent(walk.observe())[1]
        returns = []
        for reward in reversed(rewards):
            future = reward + 0.9 * future
            returns.append(future)
    parts = (seen, actions, logs, values, returns[::-1])
    return [torch.cat(part) for part in parts]


torch.manual_seed(92)
torch.set_num_threads(1)
agent, walk = Agent(), Walk(24)
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
for iteration in range(25):
    seen, actions, logs, values, returns = rollout(agent, walk)
    advantage = returns - values
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    for _ in range(3):
        for rows in torch.randperm(len(seen)).split(96):
            distribution, value = agent(seen[rows])
            ratio = (distribution.log_prob(actions[rows]) - logs[rows]).exp()
            gain = torch.min(ratio * advantage[rows], ratio.clamp(0.8, 1.2) * advantage[rows]).mean()
            loss = 0.5 * F.smooth_l1_loss(value, returns[rows]) - gain - 0.01 * distribution.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if iteration % 5 == 0:
        print(iteration, round(returns.mean().item(), 3))
