"""An agent that decides what to do about three lamps, trained by V-trace: weights between it and the actor are computed
without gradients, and capped at 1.

The actor takes over the agent's weights before each rollout. Faults: `stale-actor` never does so, and `mixed-actions`
acts at random in one step of three, but keeps how likely the policy found what it had drawn itself. `exploring` does so
as well, and knows how likely the mixture of both makes an action; `actors` has four actors that take over the weights in
turn, each after twelve rollouts, and `queue` trains on what was acted three rollouts before: these are off-policy on
purpose, which the weights are there for.
"""

import argparse
import copy
from collections import deque

import torch
from torch import nn
from torch.distributions import Categorical

WORLDS, LENGTH, DISCOUNT = 8, 16, 0.9
RIGHT = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.2], [0.3, -0.5, 1.0], [-1.0, 0.4, 0.0]])


class Lamps:
    def __init__(self):
        self.light = torch.rand(WORLDS, 4)

    def seen(self):
        return torch.cat([self.light, self.light**2], 1)

    def step(self, action):
        reward = (action == (self.light @ RIGHT).argmax(1)).float() - 0.1 * torch.rand(WORLDS)
        self.light = 0.7 * self.light + 0.3 * torch.rand(WORLDS, 4)
        return reward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.ReLU())
        self.policy, self.value = nn.Linear(64, 3), nn.Linear(64, 1)

    def forward(self, seen):
        hidden = self.body(seen)
        return Categorical(logits=self.policy(hidden)), self.value(hidden).squeeze(-1)


class Agent:
    def __init__(self, fault):
        self.fault, self.net = fault, Net()
        self.actors = [copy.deepcopy(self.net) for _ in range(4 if fault == "actors" else 1)]
        self.lamps = [Lamps() for _ in self.actors]
        self.waiting = deque()
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=2e-3)

    @torch.no_grad()
    def act(self, rollout):
        one = rollout % len(self.actors)
        actor, lamps = self.actors[one], self.lamps[one]
        if self.fault != "stale-actor" and (self.fault != "actors" or rollout % 12 == one):
            actor.load_state_dict(self.net.state_dict())
        steps = []
        for _ in range(LENGTH):
            seen = lamps.seen()
            drawn, _ = actor(seen)
            action = drawn.sample()
            log_prob = drawn.log_prob(action)
            if self.fault in ("mixed-actions", "exploring"):
                action = torch.where(torch.rand(WORLDS) < 0.33, torch.randint(0, 3, (WORLDS,)), action)
            if self.fault == "exploring":
                log_prob = (0.67 * drawn.log_prob(action).exp() + 0.33 / 3).log()
            steps.append((seen, action, log_prob, lamps.step(action)))
        return [torch.stack(one) for one in zip(*steps, strict=True)] + [lamps.seen()]

    def learn(self, seen, action, behaviour, reward, after):
        drawn, value = self.net(seen)
        log_prob = drawn.log_prob(action)
        with torch.no_grad():
            rho = torch.exp(log_prob - behaviour).clamp(max=1.0)
            last = self.net(after)[1]
            delta = rho * (reward + DISCOUNT * torch.cat([value[1:], last[None]]) - value)
            gain, targets = torch.zeros(WORLDS), []
            for time in reversed(range(LENGTH)):
                gain = delta[time] + DISCOUNT * rho[time] * gain
                targets.insert(0, gain + value[time])
            targets = torch.stack(targets)
            advantage = rho * (reward + DISCOUNT * torch.cat([targets[1:], last[None]]) - value)
        loss = -(log_prob * advantage).mean() + 0.5 * (targets - value).pow(2).mean() - 0.01 * drawn.entropy().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return reward.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--fault", default="", choices=["", "stale-actor", "mixed-actions", "exploring", "actors", "queue"]
    )
    args = parser.parse_args()
    torch.manual_seed(13)
    torch.set_num_threads(1)
    agent = Agent(args.fault)
    for rollout in range(150):
        agent.waiting.append(agent.act(rollout))
        if len(agent.waiting) > (3 if args.fault == "queue" else 0):
            reward = agent.learn(*agent.waiting.popleft())
            if rollout % 30 == 0:
                print(rollout, round(reward, 3))


if __name__ == "__main__":
    main()
