"""Attention written with `scaled_dot_product_attention` and a constant `dropout_p=0.2`, which `model.eval()` cannot
reach.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.2)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, 2)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.block = Block(width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.block(self.embed(x)).mean(1)).squeeze(1)


def draw(n):
    x = torch.randn(n, 8, 4)
    return x, x[:, :, 0].max(1).values


def main():
    torch.manual_seed(59)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x_val, y_val = draw(256)
    for step in range(250):
        model.train()
        x, y = draw(64)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            model.eval()
            with torch.inference_mode():
                val = (
                    sum(F.mse_loss(model(a), b).item() for a, b in zip(x_val.split(64), y_val.split(64), strict=True))
                    / 4
                )
            print(f"step {step + 1}: loss {loss.item():.4f} val {val:.4f}")


if __name__ == "__main__":
    main()
