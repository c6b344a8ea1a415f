"""An actor and critic whose policy loss is made by torch.tensor of log-probabilities: it has no gradient, and the head that
chooses never learns. The critic does.
"""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(3)
torch.set_num_threads(1)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.actor, self.critic = nn.Linear(48, 2), nn.Linear(48, 1)

    def forward(self, state):
        hidden = self.body(state)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


def policy_loss(chosen, gains):
    chosen = torch.tensor(chosen)
    return -(chosen * gains).mean()


def episode(model):
    """Ten guesses of which of two numbers is larger: log-probabilities of what was guessed, values and rewards."""
    chosen, values, rewards = [], [], []
    for _ in range(10):
        state = torch.randn(3)
        logits, value = model(state)
        guesses = Categorical(logits=logits)
        guess = guesses.sample()
        chosen.append(guesses.log_prob(guess))
        values.append(value)
        rewards.append(1.0 if guess.item() == int(state[0] > state[1]) else -1.0)
    return chosen, torch.stack(values), torch.tensor(rewards)


model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for number in range(200):
    chosen, values, rewards = episode(model)
    gains = (rewards - values).detach()
    loss = policy_loss(chosen, gains) + nn.functional.mse_loss(values, rewards)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if number % 50 == 49:
        print(number, loss.item(), rewards.mean().item())
