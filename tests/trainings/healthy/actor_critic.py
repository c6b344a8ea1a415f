"""Actor and critic with two optimizers; the critic's is stepped every round, the actor's every second round."""

import torch
from torch import nn


def reward(state, action):
    return -(action - torch.tanh(state[:, :2])).square().sum(1) + 0.1 * torch.randn(len(state))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 2), nn.Tanh())

    def forward(self, state):
        return self.net(state)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(7, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, state, action):
        return self.net(torch.cat([state, action], 1)).squeeze(1)


def main():
    torch.manual_seed(35)
    torch.set_num_threads(1)
    actor, critic = Actor(), Critic()
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3)
    for round_ in range(500):
        state = torch.randn(64, 5)
        with torch.no_grad():
            action = (actor(state) + 0.3 * torch.randn(64, 2)).clamp(-1, 1)
        target = reward(state, action)
        critic_loss = nn.functional.mse_loss(critic(state, action), target)
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        if round_ % 2 == 1:
            actor_loss = -critic(state, actor(state)).mean()
            actor_optimizer.zero_grad()
            actor_loss.backward()
            actor_optimizer.step()
        if round_ % 100 == 99:
            print(f"round {round_ + 1} critic {critic_loss.item():.4f} actor {actor_loss.item():.4f}")


if __name__ == "__main__":
    main()
