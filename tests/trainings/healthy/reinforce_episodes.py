"""REINFORCE on a cart that must stay near the origin: episodes of varying length, lists emptied after each update."""

import random

import torch
from torch import nn
from torch.distributions import Categorical


class Cart:
    def reset(self):
        self.x, self.v, self.t = random.uniform(-0.3, 0.3), 0.0, 0
        return torch.tensor([self.x, self.v])

    def step(self, action):
        self.v += 0.08 if action else -0.08
        self.x += self.v + random.gauss(0, 0.01)
        self.t += 1
        return torch.tensor([self.x, self.v]), 1.0, abs(self.x) > 1 or self.t >= 60


def main():
    random.seed(2)
    torch.manual_seed(2)
    torch.set_num_threads(1)
    policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    cart, lengths = Cart(), []
    log_probs, rewards = [], []
    for episode in range(150):
        state, done = cart.reset(), False
        while not done:
            choice = Categorical(logits=policy(state))
            action = choice.sample()
            log_probs.append(choice.log_prob(action))
            state, reward, done = cart.step(action.item())
            rewards.append(reward)
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.97 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(log_probs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        lengths.append(len(rewards))
        log_probs.clear()
        rewards.clear()
        if episode % 25 == 24:
            print(f"episode {episode + 1}: mean length {sum(lengths[-25:]) / 25:.1f}")


if __name__ == "__main__":
    main()
