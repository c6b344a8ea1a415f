"""GAN that steps the discriminator between two backwards through it: the generator's loss was computed with the
weights from before `optimizer_d.step()`.
"""

import torch
from torch import nn

torch.manual_seed(2)
torch.set_num_threads(1)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
bce = nn.functional.binary_cross_entropy_with_logits

for step in range(300):
    real = torch.randn(64, 2) * 0.2 + torch.tensor([1.0, -1.0])
    fake = generator(torch.randn(64, 4))
    score_fake = discriminator(fake)
    score_real = discriminator(real)
    loss_d = bce(score_real, torch.ones(64, 1)) + bce(discriminator(fake.detach()), torch.zeros(64, 1))
    loss_g = bce(score_fake, torch.ones(64, 1))
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
    if step % 50 == 0:
        print(step, loss_d.item(), loss_g.item())
