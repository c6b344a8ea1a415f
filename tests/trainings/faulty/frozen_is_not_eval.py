"""Denoising convnet; before validation the trainer switches requires_grad off instead of the mode, and on again."""

import torch
from torch import nn


class Trainer:
    def __init__(self):
        torch.manual_seed(19)
        torch.set_num_threads(1)
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Dropout2d(0.1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 1, 3, padding=1),
        )
        self.optimizer = torch.optim.RMSprop(self.net.parameters(), lr=1e-3)
        self.clean = torch.nn.functional.avg_pool2d(torch.randn(480, 1, 20, 20), 5, 1)
        self.noisy = self.clean + 0.3 * torch.randn_like(self.clean)

    def epoch(self):
        for rows in torch.randperm(400).split(20):
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.net(self.noisy[rows]), self.clean[rows])
            loss.backward()
            self.optimizer.step()
        return loss.item()

    def validate(self):
        self.net.requires_grad_(False)
        losses = []
        for noisy, clean in zip(self.noisy[400:].split(16), self.clean[400:].split(16), strict=True):
            losses.append(nn.functional.mse_loss(self.net(noisy), clean).item())
        self.net.requires_grad_(True)
        return sum(losses) / len(losses)


trainer = Trainer()
for number in range(12):
    print(number, f"{trainer.epoch():.4f} {trainer.validate():.4f}")
