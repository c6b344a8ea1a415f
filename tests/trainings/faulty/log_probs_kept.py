"""Policy gradient on a bandit with contexts; every batch's log-probabilities and entropies stay in `log`, graphs
included. `log.append(...)` lacks `.detach()`.
"""

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(41)
torch.set_num_threads(1)
policy = nn.Sequential(nn.Linear(12, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.Adam(policy.parameters(), lr=2e-3)
payoff = torch.randn(12, 5)
log = []
baseline = 0.0
for update in range(400):
    context = torch.randn(64, 12)
    choice = Categorical(logits=policy(context))
    arm = choice.sample()
    reward = (context @ payoff).gather(1, arm.unsqueeze(1)).squeeze(1)
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    log_prob, entropy = choice.log_prob(arm), choice.entropy()
    log.append((log_prob, entropy, reward))
    loss = -(log_prob * (reward - baseline)).mean() - 0.01 * entropy.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 80 == 0:
        print(f"update {update}: reward {reward.mean().item():.3f}")
