"""Two optimizers over one network: weights on training batches, mixing coefficients on held-out batches."""

import torch
import torch.nn.functional as F
from torch import nn


class Mixed(nn.Module):
    """A weighted sum of candidate operations; the weights are learned too."""

    def __init__(self, width):
        super().__init__()
        self.candidates = nn.ModuleList(
            [
                nn.Identity(),
                nn.Linear(width, width),
                nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)),
            ]
        )
        self.alpha = nn.Parameter(1e-3 * torch.randn(3))

    def forward(self, x):
        share = F.softmax(self.alpha, dim=0)
        return sum(s * op(x) for s, op in zip(share, self.candidates, strict=True))


class SuperNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(10, 24)
        self.cells = nn.ModuleList(Mixed(24) for _ in range(2))
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        x = torch.tanh(self.stem(x))
        for cell in self.cells:
            x = torch.tanh(cell(x))
        return self.head(x)

    def coefficients(self):
        return [cell.alpha for cell in self.cells]

    def weights(self):
        chosen = {id(alpha) for alpha in self.coefficients()}
        return [p for p in self.parameters() if id(p) not in chosen]


torch.manual_seed(95)
torch.set_num_threads(1)
net = SuperNet()
weight_optimizer = torch.optim.SGD(net.weights(), lr=0.05, momentum=0.9, weight_decay=3e-4)
mixing_optimizer = torch.optim.Adam(net.coefficients(), lr=3e-3, betas=(0.5, 0.999))
anneal = torch.optim.lr_scheduler.CosineAnnealingLR(weight_optimizer, T_max=8)
plan = torch.randn(10, 4)
data = torch.randn(1600, 10)
kinds = ((data @ plan) + data[:, :4] * data[:, 4:8]).argmax(1)
for epoch in range(8):
    for rows, others in zip(torch.randperm(800).split(40), (800 + torch.randperm(800)).split(40), strict=True):
        mixing_optimizer.zero_grad()
        F.cross_entropy(net(data[others]), kinds[others]).backward()
        mixing_optimizer.step()
        weight_optimizer.zero_grad()
        loss = F.cross_entropy(net(data[rows]), kinds[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(net.weights(), 5.0)
        weight_optimizer.step()
    anneal.step()
    print(epoch, round(loss.item(), 4), [round(a, 2) for a in net.cells[0].alpha.softmax(0).tolist()])
