"""Text classifier whose `collate_fn` tokenises with regular expressions, word by word, every time a batch is made."""

import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader

POSITIVE = ["good", "great", "fine", "lovely", "superb"]
NEGATIVE = ["bad", "awful", "poor", "dull", "weak"]
NEUTRAL = ["film", "plot", "actor", "scene", "music", "camera", "story", "ending", "was", "the", "and", "a"]
VOCABULARY = {word: i + 1 for i, word in enumerate(POSITIVE + NEGATIVE + NEUTRAL)}


def make_reviews(n, rng):
    reviews = []
    for _ in range(n):
        label = rng.randint(0, 1)
        words = [rng.choice(NEUTRAL) for _ in range(30)]
        for _ in range(3):
            words[rng.randrange(30)] = rng.choice(POSITIVE if label else NEGATIVE)
        reviews.append((" ".join(words) + ".", label))
    return reviews


def tokenize(text):
    tokens = []
    for piece in re.findall(r"\w+|\W", text.lower()):
        for word, index in VOCABULARY.items():
            if re.fullmatch(re.escape(word), piece):
                tokens.append(index)
    return tokens


def collate(batch):
    rows = [tokenize(text) for text, _ in batch]
    width = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    return ids, torch.tensor([label for _, label in batch])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(len(VOCABULARY) + 1, 32, padding_idx=0)
        self.out = nn.Linear(32, 2)

    def forward(self, ids):
        return self.out(self.bag(ids))


if __name__ == "__main__":
    torch.manual_seed(30)
    torch.set_num_threads(1)
    loader = DataLoader(make_reviews(640, random.Random(5)), batch_size=16, shuffle=True, collate_fn=collate)
    model = Bag()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(3):
        correct = 0
        for ids, labels in loader:
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += (logits.argmax(1) == labels).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.3f} train acc {correct / 640:.3f}")
