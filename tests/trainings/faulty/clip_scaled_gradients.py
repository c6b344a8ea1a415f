"""Float16 transformer; `clip_grad_norm_` runs before the scaler has unscaled, so the clip sees gradients times
65536.
"""

import torch
import torch.nn.functional as F
from torch import nn


class TinyTransformer(nn.Module):
    def __init__(self, vocabulary=12, width=32):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(12, width)
        layer = nn.TransformerEncoderLayer(width, 2, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position(torch.arange(tokens.size(1)))
        return self.out(self.layers(x))


def main():
    torch.manual_seed(53)
    torch.set_num_threads(1)
    model = TinyTransformer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(200):
        tokens = torch.randint(0, 12, (32, 12))
        target = tokens.flip(1)
        optimizer.zero_grad()
        with torch.amp.autocast("cpu", dtype=torch.float16):
            logits = model(tokens)
            loss = F.cross_entropy(logits.transpose(1, 2), target)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 40 == 0:
            print(f"step {step} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
