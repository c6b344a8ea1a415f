"""Documents of sentences, padded to as many of each: words attend to the words of their sentence.

`--fault empty-rows`: a document with fewer sentences has rows of nothing but padding, which attend to nothing.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader

FAULT = sys.argv[-1] if "--fault" in sys.argv else ""
SENTENCES, WORDS, PADDING = 4, 8, 0


def documents(count, seed):
    generator = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        label = int(torch.randint(3, (1,), generator=generator))
        rows = torch.full((SENTENCES, WORDS), PADDING)
        for row in rows[: 2 if number % 97 == 90 else SENTENCES]:
            length = int(torch.randint(3, WORDS + 1, (1,), generator=generator))
            words = torch.randint(4, 40, (length,), generator=generator)
            words[torch.rand(length, generator=generator) < 0.3] = label + 1
            row[:length] = words
        found.append((rows, label))
    return found


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.words = nn.Embedding(40, width, padding_idx=PADDING)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3)

    def forward(self, documents):
        rows = documents.flatten(0, 1)
        padding = rows.eq(PADDING)
        mask = padding if FAULT == "empty-rows" else padding & ~padding.all(-1, keepdim=True)
        words = self.words(rows)
        attended, _ = self.attention(words, words, words, key_padding_mask=mask)
        words = self.norm(words + attended).masked_fill(padding[..., None], 0.0)
        sentences = words.sum(1) / (~padding).sum(1, keepdim=True).clamp(min=1)
        return self.out(sentences.view(-1, SENTENCES, sentences.size(-1)).mean(1))


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(documents(600, 1), batch_size=12, shuffle=True)
model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(4):
    for rows, labels in loader:
        loss = nn.functional.cross_entropy(model(rows), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
