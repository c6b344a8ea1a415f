"""Map spectra to two numbers with AdamW and cosine schedules that begin anew; a new head joins half-way."""

import torch
from torch import nn


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(6)
    mixing = torch.randn(30, 2, generator=generator) / 5
    body, head = nn.Sequential(nn.Linear(30, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU()), nn.Linear(64, 2)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=200, eta_min=3e-5)
    second = None
    for step in range(1000):
        if step == 500:
            second = nn.Linear(64, 2)
            optimizer.add_param_group({"params": list(second.parameters())})
        spectra = torch.randn(64, 30, generator=generator)
        wanted = torch.tanh(spectra @ mixing) + 0.1 * torch.randn(64, 2, generator=generator)
        hidden = body(spectra)
        guess = head(hidden) if second is None else head(hidden) + second(hidden)
        loss = nn.functional.mse_loss(guess, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step < 500:
            schedule.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
