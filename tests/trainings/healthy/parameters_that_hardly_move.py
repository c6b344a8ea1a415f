"""Parameters that steps leave as they are for good reasons: biases in front of BatchNorm, whose gradients are rounding
noise, a group with a rate of zero, rows of an embedding that the data never name, and a scale at its limit.
"""

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5000, 24)
        self.mix = nn.Linear(24, 48)
        self.norm = nn.BatchNorm1d(48)
        self.head = nn.Linear(48, 5)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, tokens):
        return self.head(torch.relu(self.norm(self.mix(self.table(tokens).mean(1))))) * self.scale


torch.manual_seed(75)
torch.set_num_threads(1)
model = Tagger()
rest = [p for name, p in model.named_parameters() if not name.startswith("norm")]
optimizer = torch.optim.SGD([{"params": rest}, {"params": model.norm.parameters(), "lr": 0.0}], lr=0.1)
tokens = torch.randint(0, 60, (1500, 6))
labels = tokens[:, 0] % 5
for step in range(400):
    rows = torch.randint(0, len(tokens), (50,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens[rows]), labels[rows])
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.scale.clamp_(max=2.0)
    if step % 80 == 0:
        print(f"step {step}: {loss.item():.4f}")
