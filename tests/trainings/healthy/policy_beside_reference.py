"""A policy that is held near the one that it began as: the reference is asked for each minibatch, and a critic values
what comes after it. Several passes over what an actor in a method of its own did.
"""

import copy

import torch
from torch import nn
from torch.distributions import Categorical


class Greenhouse:
    """Open, close or leave each window by what the thermometers read."""

    def __init__(self, count):
        self.inside, self.outside = torch.randn(count), torch.randn(count)

    def read(self):
        return torch.stack([self.inside, self.outside, self.inside - self.outside], 1)

    def open(self, choice):
        self.inside = self.inside + 0.3 * (choice - 1.0) * (self.outside - self.inside).sign() + 0.1 * self.outside
        self.inside = self.inside.clamp(-3, 3)
        self.outside = 0.95 * self.outside + 0.3 * torch.randn_like(self.outside)
        return -self.inside.abs()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))
        self.critic = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))

    def choose(self, seen, choice=None):
        law = Categorical(logits=self.actor(seen))
        choice = law.sample() if choice is None else choice
        return choice, law.log_prob(choice), law.entropy(), self.critic(seen).flatten()


torch.manual_seed(29)
torch.set_num_threads(1)
agent, house = Agent(), Greenhouse(16)
reference = copy.deepcopy(agent.actor).eval().requires_grad_(False)
optimizer = torch.optim.Adam(agent.parameters(), lr=2e-2, eps=1e-5)
for update in range(30):
    seen, choices, logs, rewards, after = [], [], [], [], []
    for _ in range(16):
        with torch.no_grad():
            choice, log_p, _, _ = agent.choose(house.read())
        seen.append(house.read())
        choices.append(choice)
        logs.append(log_p)
        rewards.append(house.open(choice))
        after.append(house.read())
    seen, choices, logs, rewards, after = map(torch.cat, (seen, choices, logs, rewards, after))
    for _ in range(4):
        for rows in torch.randperm(len(seen)).split(32):
            with torch.no_grad():
                expected = Categorical(logits=reference(seen[rows])).log_prob(choices[rows])
                target = rewards[rows] + 0.7 * agent.choose(after[rows])[3]
            _, new, entropy, value = agent.choose(seen[rows], choices[rows])
            gain = (target - value).detach()
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            log_ratio = new - logs[rows]
            ratio = log_ratio.exp()
            policy_loss = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean()
            distance = ((expected - new).exp() - (expected - new) - 1).mean()
            loss = policy_loss + 0.5 * ((value - target) ** 2).mean() + 0.02 * distance - 0.005 * entropy.mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    if update % 10 == 0:
        print(update, round(rewards.mean().item(), 3))
