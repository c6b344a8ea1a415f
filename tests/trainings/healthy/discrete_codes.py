"""A vector-quantised autoencoder: straight-through codes, a commitment loss, a codebook updated by moving averages."""

import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    def __init__(self, codes=32, width=8, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("table", torch.randn(codes, width))
        self.register_buffer("count", torch.ones(codes))
        self.register_buffer("total", self.table.clone())

    def forward(self, hidden):
        flat = hidden.reshape(-1, hidden.shape[-1])
        index = torch.cdist(flat.detach(), self.table).argmin(1)
        chosen = F.embedding(index, self.table).view_as(hidden)
        if self.training:
            with torch.no_grad():
                used = F.one_hot(index, len(self.table)).to(flat.dtype)
                self.count.lerp_(used.sum(0), 1 - self.decay)
                self.total.lerp_(used.T @ flat, 1 - self.decay)
                self.table.copy_(self.total / (self.count + 1e-3)[:, None])
        commitment = F.mse_loss(hidden, chosen.detach())
        return hidden + (chosen - hidden).detach(), commitment


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv1d(1, 16, 4, 2, 1), nn.GELU(), nn.Conv1d(16, 8, 4, 2, 1))
        self.codebook = Codebook()
        self.decode = nn.Sequential(nn.ConvTranspose1d(8, 16, 4, 2, 1), nn.GELU(), nn.ConvTranspose1d(16, 1, 4, 2, 1))

    def forward(self, wave):
        code, commitment = self.codebook(self.encode(wave).transpose(1, 2))
        return self.decode(code.transpose(1, 2)), commitment


def waves(count):
    time = torch.linspace(0, 6.28, 64)
    phase, pitch = 6.28 * torch.rand(count, 1), torch.randint(1, 4, (count, 1))
    return (torch.sin(pitch * time + phase) + 0.05 * torch.randn(count, 64))[:, None]


def main():
    torch.manual_seed(94)
    torch.set_num_threads(1)
    model = Autoencoder()
    optimizer = torch.optim.RAdam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=500, eta_min=1e-5)
    for step in range(500):
        model.train()
        wave = waves(32)
        rebuilt, commitment = model(wave)
        loss = F.mse_loss(rebuilt, wave) + 0.25 * commitment
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 100 == 99:
            model.eval()
            with torch.no_grad():
                fresh = waves(64)
                print(step, loss.item(), F.mse_loss(model(fresh)[0], fresh).item())


if __name__ == "__main__":
    main()
