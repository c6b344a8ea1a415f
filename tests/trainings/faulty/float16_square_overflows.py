"""A feature block squares its input in float16: from the first batches on the squares of some samples leave the range
of the format, the loss is not finite, and the scaler skips step after step.
"""

import torch
from torch import nn


class Energy(nn.Module):
    """Mean square of a window."""

    def forward(self, x):
        return (x * x).mean(-1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Linear(64, 8 * 16)
        self.energy = Energy()
        self.decide = nn.Linear(8, 2)

    def forward(self, sound):
        windows = self.filter(sound).unflatten(-1, (8, 16))
        return self.decide(self.energy(windows))


torch.manual_seed(77)
torch.set_num_threads(1)
sound = 400 * torch.randn(1000, 64)
labels = (sound.abs().mean(1) > 320).long()
model = Detector()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu")
for step in range(300):
    rows = torch.randint(0, len(sound), (25,))
    optimizer.zero_grad()
    with torch.autocast("cpu", torch.float16):
        loss = nn.functional.cross_entropy(model(sound[rows]).float(), labels[rows])
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 60 == 0:
        print(f"step {step}: loss {loss.item():.4f} scale {scaler.get_scale():g}")
