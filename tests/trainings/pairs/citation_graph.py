"""Two layers of graph convolution: each step and each validation sees the whole graph, masks pick the papers.

Faults: `no-eval` measures the held-out papers with the model as the training left it.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

PAPERS, WORDS, FIELDS = 500, 48, 5


class GraphConvolution(nn.Module):
    def __init__(self, given, made):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(given, made))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, links):
        return links @ (x @ self.weight)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GraphConvolution(WORDS, 32), GraphConvolution(32, FIELDS)

    def forward(self, x, links):
        x = F.dropout(x, 0.4, training=self.training)
        x = F.dropout(F.relu(self.first(x, links)), 0.4, training=self.training)
        return F.log_softmax(self.second(x, links), dim=1)


def corpus():
    fields = torch.randint(0, FIELDS, (PAPERS,))
    words = torch.randn(PAPERS, WORDS) + 0.4 * torch.randn(FIELDS, WORDS)[fields]
    alike = (fields[:, None] == fields).float()
    links = (torch.rand(PAPERS, PAPERS) < 0.015 * alike + 0.003).float()
    links = ((links + links.T) > 0).float() + torch.eye(PAPERS)
    scale = links.sum(1).rsqrt()
    return words, scale[:, None] * links * scale, fields


def accuracies(model, words, links, fields, masks):
    with torch.no_grad():
        chosen = model(words, links).argmax(dim=1)
    return [(chosen[mask] == fields[mask]).float().mean().item() for mask in masks]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default="")
    args = parser.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    words, links, fields = corpus()
    order = torch.randperm(PAPERS)
    train_mask, val_mask, test_mask = (torch.zeros(PAPERS, dtype=torch.bool) for _ in range(3))
    train_mask[order[:200]], val_mask[order[200:350]], test_mask[order[350:]] = True, True, True
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best = (0.0, 0.0)
    for epoch in range(1, 121):
        model.train()
        optimizer.zero_grad()
        out = model(words, links)
        loss = F.nll_loss(out[train_mask], fields[train_mask])
        loss.backward()
        optimizer.step()
        if args.fault != "no-eval":
            model.eval()
        held_out, test = accuracies(model, words, links, fields, (val_mask, test_mask))
        best = max(best, (held_out, test))
        if epoch % 20 == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, validation {held_out:.3f}, test {test:.3f}")
    print(f"best on validation: {best[0]:.3f}, then {best[1]:.3f} on the test papers")


if __name__ == "__main__":
    main()
