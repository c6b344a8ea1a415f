"""Tell kinds of short sounds apart with a 1D convolution and BatchNorm; save after each epoch, test the best in the end.

`--fault parameters-only` writes what named_parameters() gives, which lacks the running statistics, and loads it into a
new model with strict=False. `--fault copied-parameters` writes copies of them, `--fault weights-alone` no optimizer.
"""

import os
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
KINDS = 5


def sounds(count, seed):
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(0, KINDS, (count,), generator=generator)
    time = torch.linspace(0, 6.28, 64)
    phases = 6.28 * torch.rand(count, 1, generator=generator)
    waves = torch.sin((kinds[:, None] + 1) * time + phases) + 0.8 * torch.randn(count, 64, generator=generator)
    return TensorDataset(waves[:, None], kinds)


def build():
    return nn.Sequential(
        nn.Conv1d(1, 16, 7, padding=3),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Conv1d(16, 16, 7, padding=3, stride=2),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 32, KINDS),
    )


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = [(model(waves).argmax(1) == kinds).float() for waves, kinds in loader]
    return torch.cat(right).mean().item()


def weights(model):
    if FAULT == "parameters-only":
        return {name: parameter.detach() for name, parameter in model.named_parameters()}
    if FAULT in ("copied-parameters", "weights-alone"):
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    return model.state_dict()


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    train_loader = DataLoader(sounds(800, 1), batch_size=40, shuffle=True)
    val_loader, test_loader = DataLoader(sounds(240, 2), batch_size=60), DataLoader(sounds(240, 3), batch_size=60)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    folder, best, at = tempfile.mkdtemp(), 0.0, ""
    for epoch in range(5):
        model.train()
        for waves, kinds in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(waves), kinds)
            loss.backward()
            optimizer.step()
        score = accuracy(model, val_loader)
        path = os.path.join(folder, f"{epoch}.pt")
        beside = {} if FAULT == "weights-alone" else {"optimizer": optimizer.state_dict()}
        torch.save({"weights": weights(model), "epoch": epoch, "score": score} | beside, path)
        if score >= best:
            best, at = score, path
        print(f"epoch {epoch} loss {loss.item():.4f} validation {score:.3f}")
    final = build()
    final.load_state_dict(torch.load(at)["weights"], strict=not FAULT)
    print(f"test {accuracy(final, test_loader):.3f}")


if __name__ == "__main__":
    main()
