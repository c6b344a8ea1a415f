"""Few labels, many pictures without: a student, its running average as teacher, and agreement of their probabilities."""

import copy
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(16, 3),
    )


def pictures(count):
    kind = torch.randint(0, 3, (count,))
    base = torch.zeros(count, 1, 12, 12)
    base[kind == 0, :, ::3] = 1.0
    base[kind == 1, :, :, ::3] = 1.0
    return base + 0.8 * torch.randn_like(base), kind


class MeanTeacher:
    def __init__(self):
        self.student = network()
        self.teacher = copy.deepcopy(self.student)
        for parameter in self.teacher.parameters():
            parameter.requires_grad_(False)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        self.supervised, self.agreement = nn.CrossEntropyLoss(), nn.MSELoss()

    def step(self, labelled, labels, free, weight):
        self.student.train()
        loss = self.supervised(self.student(labelled), labels)
        with torch.no_grad():
            wanted = self.teacher(free + 0.1 * torch.randn_like(free)).softmax(dim=1)
        loss = loss + weight * self.agreement(self.student(free).softmax(dim=1), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.teacher.state_dict().values(), self.student.state_dict().values(), strict=True):
                slow.copy_(fast if not slow.is_floating_point() else slow.lerp(fast, 0.02))
        return loss.item()


torch.manual_seed(93)
torch.set_num_threads(1)
labelled = DataLoader(TensorDataset(*pictures(96)), batch_size=16, shuffle=True, drop_last=True)
free = DataLoader(TensorDataset(pictures(960)[0]), batch_size=48, shuffle=True)
check_pictures, check_kinds = pictures(240)
method = MeanTeacher()
for epoch in range(10):
    for (picture, kind), (other,) in zip(itertools.cycle(labelled), free, strict=False):
        loss = method.step(picture, kind, other, weight=min(1.0, epoch / 4))
    method.teacher.eval()
    with torch.no_grad():
        right = (method.teacher(check_pictures).argmax(1) == check_kinds).float().mean().item()
    print(epoch, round(loss, 4), round(right, 3))
