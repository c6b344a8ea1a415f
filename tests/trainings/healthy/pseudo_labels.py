"""Semi-supervised training: in every step the same network labels unlabelled rows under `no_grad` in eval mode."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(18)
    torch.set_num_threads(1)
    w = torch.randn(15, 4)
    labelled = torch.randn(300, 15)
    targets = (labelled @ w).argmax(1)
    unlabelled = torch.randn(4000, 15)
    model = nn.Sequential(nn.Linear(15, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for step in range(350):
        model.eval()
        with torch.no_grad():
            guess_on = unlabelled[torch.randint(0, 4000, (64,))]
            confidence, pseudo = F.softmax(model(guess_on), 1).max(1)
        model.train()
        pick = torch.randint(0, 300, (32,))
        loss = F.cross_entropy(model(labelled[pick]), targets[pick])
        noisy = guess_on + 0.1 * torch.randn_like(guess_on)
        unsupervised = F.cross_entropy(model(noisy), pseudo, reduction="none")
        loss = loss + 0.5 * (unsupervised * (confidence > 0.9)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f} used {(confidence > 0.9).float().mean().item():.2f}")


if __name__ == "__main__":
    main()
