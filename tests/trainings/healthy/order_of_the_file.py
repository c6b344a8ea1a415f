"""Loaders that read in order and may: mixed labels, rare positives, a regression over time, and text in chunks."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run(name, inputs, targets, model, loss_of):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(3):
        for x, y in DataLoader(TensorDataset(inputs, targets), batch_size=16):
            loss = loss_of(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(name, round(loss.item(), 4))


torch.manual_seed(84)
torch.set_num_threads(1)
x = torch.randn(800, 10)
run("mixed", x, (x @ torch.randn(10, 4)).argmax(1), nn.Linear(10, 4), F.cross_entropy)
rare = (x[:, 0] > 2.2).float()[:, None]
run("rare", x, rare, nn.Linear(10, 1), F.binary_cross_entropy_with_logits)
run("time", x, torch.linspace(-1, 1, 800)[:, None], nn.Linear(10, 1), F.mse_loss)
text = torch.randint(0, 20, (200, 9)).sort(1).values
language = nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 20))
run(
    "text",
    text[:, :-1],
    text[:, 1:],
    language,
    lambda scores, words: F.cross_entropy(scores.flatten(0, 1), words.flatten()),
)
