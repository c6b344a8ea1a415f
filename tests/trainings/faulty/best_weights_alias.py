"""Early stopping keeps the best state_dict in a variable, as it is, and restores it in the end: nothing is restored."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
x = torch.randn(600, 12)
y = (x[:, :4].sum(1) + 0.8 * torch.randn(600) > 0).long()
train_x, train_y, val_x, val_y = x[:400], y[:400], x[400:], y[400:]


class Trainer:
    def __init__(self, model, patience=6):
        self.model, self.patience = model, patience
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        self.best, self.best_state, self.waited = float("inf"), None, 0

    def epoch(self):
        self.model.train()
        for rows in torch.randperm(len(train_x)).split(40):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(train_x[rows]), train_y[rows]).backward()
            self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        return F.cross_entropy(self.model(val_x), val_y).item()

    def fit(self):
        for _ in range(60):
            self.epoch()
            loss = self.validate()
            if loss < self.best:
                self.best, self.waited = loss, 0
                self.best_state = self.model.state_dict()
            else:
                self.waited += 1
                if self.waited >= self.patience:
                    break
        self.model.load_state_dict(self.best_state)
        print(self.best, self.validate())


Trainer(nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 2))).fit()
