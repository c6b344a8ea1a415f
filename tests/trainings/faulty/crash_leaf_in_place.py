"""Weight clipping without `no_grad`: `p.clamp_(-0.1, 0.1)` on a leaf raises when it is first reached, at step 100."""

import torch
from torch import nn

torch.manual_seed(7)
torch.set_num_threads(1)
critic = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-4)
for step in range(200):
    real, fake = torch.randn(64, 5) + 0.5, torch.randn(64, 5)
    loss = critic(fake).mean() - critic(real).mean() + 0.1 * critic(real).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 100:
        for p in critic.parameters():
            p.clamp_(-0.1, 0.1)
    if step % 20 == 0:
        print(step, round(loss.item(), 4))
