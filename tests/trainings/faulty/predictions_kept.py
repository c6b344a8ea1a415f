"""Train a segmenter and collect all outputs for a training score that is computed once at the very end:
`self.outputs.append(logits)` keeps every batch's graph and activations.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 12, 3, padding=1)
        self.out = nn.Conv2d(12, 2, 1)

    def forward(self, x):
        return self.out(F.relu(self.c2(F.relu(self.c1(x)))))


class Learner:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.outputs, self.targets = [], []

    def fit(self, loader, epochs):
        for epoch in range(epochs):
            for image, mask in loader:
                logits = self.model(image)
                loss = F.cross_entropy(logits, mask)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.outputs.append(logits)
                self.targets.append(mask)
            print(f"epoch {epoch} loss {loss.item():.4f}")

    def score(self):
        hits = sum((o.argmax(1) == t).float().mean().item() for o, t in zip(self.outputs, self.targets, strict=True))
        return hits / len(self.outputs)


def main():
    torch.manual_seed(33)
    torch.set_num_threads(1)
    mask = torch.zeros(640, 20, 20, dtype=torch.long)
    for k in range(640):
        r, c = torch.randint(0, 12, (2,)).tolist()
        mask[k, r : r + 8, c : c + 8] = 1
    image = mask.float().unsqueeze(1) + 0.7 * torch.randn(640, 1, 20, 20)
    learner = Learner(Segmenter())
    learner.fit(DataLoader(TensorDataset(image, mask), batch_size=16, shuffle=True), epochs=5)
    print(f"training pixel accuracy {learner.score():.4f}")


if __name__ == "__main__":
    main()
