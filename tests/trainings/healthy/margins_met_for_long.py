"""Separate two kinds of grain by a margin. Once all margins are met no gradient is left, and Adam forgets their size."""

import torch
from torch import nn

FAULTLESS, LATER = 400, 2600


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(2)
    direction = torch.randn(16, generator=generator)
    model = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99), eps=1e-15)
    for step in range(LATER + 400):
        kinds = (torch.randint(0, 2, (64,), generator=generator) * 2 - 1).float()
        easy = FAULTLESS <= step < LATER
        grains = kinds[:, None] * direction * (1.0 if easy else 0.3) + 0.6 * torch.randn(64, 16, generator=generator)
        loss = torch.relu(1 - kinds * model(grains).squeeze(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
