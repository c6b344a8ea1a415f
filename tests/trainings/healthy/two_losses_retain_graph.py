"""Two backwards per step through one graph: the first keeps it (`retain_graph=True`), the last frees it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(36)
torch.set_num_threads(1)


class SharedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(18, 64), nn.ReLU())
        self.reconstruct = nn.Linear(64, 18)
        self.classify = nn.Linear(64, 3)

    def forward(self, x):
        h = self.encoder(x)
        return self.reconstruct(h), self.classify(h)


model = SharedEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
w = torch.randn(18, 3)
for step in range(400):
    x = torch.randn(64, 18)
    reconstruction, logits = model(x)
    reconstruction_loss = F.mse_loss(reconstruction, x)
    class_loss = F.cross_entropy(logits, (x @ w).argmax(1))
    optimizer.zero_grad()
    reconstruction_loss.backward(retain_graph=True)
    class_loss.backward()
    optimizer.step()
    if step % 80 == 0:
        print(f"step {step} reconstruction {reconstruction_loss.item():.4f} class {class_loss.item():.4f}")
