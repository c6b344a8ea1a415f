"""Learn by heart which of four dealers made each offer, offers weighed by their worth; words are drawn for show.

The classifier becomes certain, as it should, and its weights have one sign. What a buyer who follows it would earn is
printed as a return that stands still: it depends on the market alone.
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

OFFERS, MARKS, DEALERS = 256, 24, 4


def main():
    torch.manual_seed(6)
    torch.set_num_threads(1)
    marks = torch.randn(OFFERS, MARKS)
    dealers = (marks @ torch.randn(MARKS, DEALERS) + 0.3 * torch.randn(OFFERS, DEALERS)).argmax(1)
    worth = torch.rand(OFFERS) + 0.5
    sampler = WeightedRandomSampler(worth.tolist(), OFFERS)
    loader = DataLoader(TensorDataset(marks, dealers, worth), batch_size=32, sampler=sampler)
    model = nn.Sequential(nn.Linear(MARKS, 64), nn.ReLU(), nn.Linear(64, DEALERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(40):
        for given, made_by, weight in loader:
            market_return = 0.05 * torch.randn(()).item()
            log_p = model(given).log_softmax(-1)
            loss = -(log_p.gather(1, made_by[:, None]).squeeze(1) * weight).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            shown = Categorical(logits=model(marks[:8])).sample()
            error = F.cross_entropy(model(marks), dealers).item()
        if epoch % 10 == 9:
            print(epoch + 1, f"{loss.item():.4f}", shown.tolist(), f"{error:.4f}", f"{market_return:.3f}")


if __name__ == "__main__":
    main()
