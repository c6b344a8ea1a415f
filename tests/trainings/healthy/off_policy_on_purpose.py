"""Policies that are trained on what earlier ones did, and correct for it: a replay of the latest rollouts, an acting
copy that is refreshed every fourth time, a queue that is one rollout behind, and V-trace.
"""

import collections
import copy
import random

import torch
from torch import nn
from torch.distributions import Categorical


class Crossing:
    """Choose the phase of a traffic light by the lengths of four queues."""

    def __init__(self, count):
        self.queues = torch.rand(count, 4)

    def step(self, phase):
        served = torch.zeros_like(self.queues).scatter(1, phase[:, None], 0.5)
        self.queues = (self.queues - served).clamp(min=0) + 0.15 * torch.rand_like(self.queues)
        return 1 - self.queues.sum(1)


def made():
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 4))
    critic = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    return policy, critic, torch.optim.Adam([*policy.parameters(), *critic.parameters()], lr=3e-3)


@torch.no_grad()
def rollout(policy, critic, crossing, steps=12):
    parts = [], [], [], []
    for _ in range(steps):
        law = Categorical(logits=policy(crossing.queues))
        phase = law.sample()
        for part, value in zip(parts, (crossing.queues, phase, law.log_prob(phase)), strict=False):
            part.append(value)
        parts[3].append(crossing.step(phase))
    future = critic(crossing.queues).squeeze(-1)
    returns = []
    for reward in reversed(parts[3]):
        future = reward + 0.8 * future
        returns.insert(0, future)
    return [torch.cat(part) for part in (*parts[:3], returns)]


def update(policy, critic, optimizer, seen, phases, logs, returns, corrected=False):
    law, values = Categorical(logits=policy(seen)), critic(seen).squeeze(-1)
    gain = (returns - values).detach()
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    ratio = (law.log_prob(phases) - logs).exp()
    if corrected:
        policy_loss = -(law.log_prob(phases) * ratio.detach().clamp(max=1.0) * gain).mean()
    else:
        policy_loss = -torch.min(ratio * gain, ratio.clamp(0.7, 1.3) * gain).mean()
    loss = policy_loss + 0.5 * (returns - values).pow(2).mean() - 0.01 * law.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def replayed(rounds=30):
    policy, critic, optimizer = made()
    crossing, kept = Crossing(16), collections.deque(maxlen=8)
    for _ in range(rounds):
        kept.append(rollout(policy, critic, crossing))
        whole = [torch.cat(part) for part in zip(*kept, strict=True)]
        for _ in range(4):
            rows = torch.randint(0, len(whole[0]), (128,))
            update(policy, critic, optimizer, *[part[rows] for part in whole])


def refreshed_late(rounds=30):
    policy, critic, optimizer = made()
    crossing, acting = Crossing(16), copy.deepcopy(policy)
    for number in range(rounds):
        if number % 4 == 2:
            acting.load_state_dict(policy.state_dict())
        parts = rollout(acting, critic, crossing)
        for _ in range(3):
            for rows in torch.randperm(len(parts[0])).split(64):
                update(policy, critic, optimizer, *[part[rows] for part in parts])


def one_behind(rounds=30, corrected=False):
    policy, critic, optimizer = made()
    crossing, queue = Crossing(16), []
    for _ in range(rounds):
        queue.append(rollout(policy, critic, crossing))
        if len(queue) > 1:
            parts = queue.pop(0)
            for _ in range(3):
                for rows in torch.randperm(len(parts[0])).split(64):
                    update(policy, critic, optimizer, *[part[rows] for part in parts], corrected=corrected)


random.seed(3)
torch.manual_seed(3)
torch.set_num_threads(1)
replayed()
refreshed_late()
one_behind()
one_behind(corrected=True)
