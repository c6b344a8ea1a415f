"""Graph network on random graphs; the validation function calls the model in eval mode but without `no_grad`."""

import torch
import torch.nn.functional as F
from torch import nn


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.readout = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 2)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x, adjacency):
        x = F.relu(self.layer1(adjacency @ x))
        x = self.dropout(F.relu(self.layer2(adjacency @ x)))
        return self.readout(x.mean(1))


def graphs(n):
    label = torch.randint(0, 2, (n,))
    density = torch.where(label == 1, 0.5, 0.3).view(n, 1, 1)
    adjacency = (torch.rand(n, 12, 12) < density).float()
    adjacency = ((adjacency + adjacency.transpose(1, 2)) > 0).float()
    features = torch.ones(n, 12, 4) + 0.1 * torch.randn(n, 12, 4)
    return features, adjacency / 6, label


def accuracy(model, batches):
    model.eval()
    hits, seen = 0, 0
    for x, adjacency, label in batches:
        hits += (model(x, adjacency).argmax(1) == label).sum().item()
        seen += len(label)
    return hits / seen


def main():
    torch.manual_seed(63)
    torch.set_num_threads(1)
    held_out = [graphs(100) for _ in range(5)]
    model = GraphNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(6):
        model.train()
        for _ in range(50):
            x, adjacency, label = graphs(32)
            loss = F.cross_entropy(model(x, adjacency), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}, held-out accuracy {accuracy(model, held_out):.3f}")


if __name__ == "__main__":
    main()
