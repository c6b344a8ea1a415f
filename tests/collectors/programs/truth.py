"""Trains in many idioms, and prints for each what a recording of it should say: a row per step and optimizer, a row per
evaluation pass. What it prints comes from the loop itself, never from the recording.

An idiom is a function that yields nothing and returns nothing; it notes its rows with `Truth`.
"""

import copy
import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

STEPS, MICRO, SIZE = 4, 4, 6
CLASSES = 5


class Truth:
    """The rows of one idiom, by optimizer in the order of their first steps."""

    def __init__(self, name):
        self.name, self.steps, self.evals = name, [], []

    def step(self, optimizer=0, **columns):
        while len(self.steps) <= optimizer:
            self.steps.append([])
        self.steps[optimizer].append(columns)

    def evaluated(self, **columns):
        if self.evals is not None:
            self.evals.append(columns)

    def tell(self):
        print(json.dumps({"idiom": self.name, "steps": self.steps, "evals": self.evals}))


def norm_of(parameters):
    gradients = [p.grad for p in parameters if p.grad is not None]
    return math.sqrt(sum(float(g.double().square().sum()) for g in gradients))


def data(count=48, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 8, generator=generator), torch.randint(0, CLASSES, (count,), generator=generator)


def loaded(count=48, size=SIZE, seed=0, **options):
    return DataLoader(TensorDataset(*data(count, seed)), batch_size=size, **options)


def classifier():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, CLASSES))


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def mean(values):
    return sum(values) / len(values)


# Loops


def plain(truth):
    model = classifier()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    train, valid = loaded(45), loaded(20, 8, seed=1)
    for _ in range(2):
        model.train()
        for x, y in train:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            truth.step(
                loss=loss.item(), backwards=1, microbatches=1, batch_size=len(x), grad_norm=norm_of(model.parameters()),
                lr=optimizer.param_groups[0]["lr"], loader_batches=1, autocast=0, model_in_train=True, clips=None,
                grads_none=0, grads_carried=0, graph_retained=False,
            )  # fmt: skip
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            seen = [functional.cross_entropy(model(x), y).item() for x, y in valid]
        truth.evaluated(loss=mean(seen), forwards=3, samples=20, model_in_train=False, grad_mode=0, losses=3)


def micro_batches(step):
    generator = torch.Generator().manual_seed(step)
    for number in range(MICRO):
        targets = torch.randint(0, CLASSES, (SIZE,), generator=generator)
        targets[: (step + number) % 4] = -100  # a different number of targets counts in each
        yield torch.randn(SIZE, 8, generator=generator), targets


def accumulated(truth, losses):
    """`losses(model, step)` makes the backwards of a step and returns the loss that they stand for."""
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        value, backwards = losses(model, step)
        norm = norm_of(model.parameters())
        size = SIZE * MICRO
        truth.step(loss=value, backwards=backwards, microbatches=backwards, batch_size=size, grad_norm=norm)
        optimizer.step()
        optimizer.zero_grad()


def divided_by_targets_of_step(truth, as_tensor=False):
    """As the Hugging Face Trainer does with num_items_in_batch."""

    def losses(model, step):
        total = sum(int((targets != -100).sum()) for _, targets in micro_batches(step))
        divisor = torch.tensor(total) if as_tensor else total
        value = 0.0
        for x, y in micro_batches(step):
            loss = functional.cross_entropy(model(x), y, reduction="sum") / divisor
            value += loss.item()
            loss.backward()
        return value, MICRO

    accumulated(truth, losses)


def divided_by_a_tensor(truth):
    divided_by_targets_of_step(truth, as_tensor=True)


def part_beside_an_auxiliary_loss(truth):
    """As a mixture of experts in the Hugging Face Trainer does: what balances the experts is divided by nothing."""

    def losses(model, step):
        total = sum(int((targets != -100).sum()) for _, targets in micro_batches(step))
        value = 0.0
        for x, y in micro_batches(step):
            scores = model(x)
            loss = functional.cross_entropy(scores, y, reduction="sum") / total + 0.01 * scores.square().mean()
            value += loss.item()
            loss.backward()
        return value, MICRO

    accumulated(truth, losses)


def written_out_and_divided_by_targets_of_step(truth):
    """As the SFTTrainer of TRL does: a sum over all positions, divided by the targets of all micro-batches."""

    def losses(model, step):
        total = torch.as_tensor(sum(int((targets != -100).sum()) for _, targets in micro_batches(step)))
        value = 0.0
        for x, y in micro_batches(step):
            kept = -model(x).log_softmax(1).gather(1, y.clamp(min=0).unsqueeze(1)).squeeze(1) * (y != -100)
            loss = kept.sum() / total.clamp(min=1)
            value += loss.item()
            loss.backward()
        return value, MICRO

    accumulated(truth, losses)


def divided_by_own_targets(truth):
    """Each micro-batch has a mean of its own, and nobody divides by their number."""

    def losses(model, step):
        values = []
        for x, y in micro_batches(step):
            loss = functional.cross_entropy(model(x), y, reduction="sum") / int((y != -100).sum())
            values.append(loss.item())
            loss.backward()
        return mean(values), MICRO

    accumulated(truth, losses)


def divided_by_number(truth):
    def losses(model, step):
        values = []
        for x, y in micro_batches(step):
            loss = functional.cross_entropy(model(x), y)
            values.append(loss.item())
            (loss / MICRO).backward()
        return mean(values), MICRO

    accumulated(truth, losses)


def one_backward_of_several_forwards(truth):
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        loss = sum(functional.cross_entropy(model(x), y) for x, y in micro_batches(step)) / MICRO
        loss.backward()
        truth.step(backwards=1, batch_size=SIZE * MICRO, grad_norm=norm_of(model.parameters()))
        optimizer.step()
        optimizer.zero_grad()


def two_roots(truth):
    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        optimizer.zero_grad()
        first, second = functional.cross_entropy(model(x), y), model[0].weight.square().sum()
        torch.autograd.backward([first, second])
        truth.step(loss=(first + second).item(), backwards=1, batch_size=SIZE, grad_norm=norm_of(model.parameters()))
        optimizer.step()


# Clipping


def clipped(truth, clip, **columns):
    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        truth.step(loss=loss.item(), grad_norm=norm_of(model.parameters()), clips=1, **columns)
        clip(model.parameters())
        optimizer.step()


def clipped_by_norm(truth):
    clipped(truth, lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.1), clip_max_norm=0.1)


def clipped_by_value(truth):
    clipped(truth, lambda parameters: nn.utils.clip_grad_value_(parameters, 0.01))


def clipped_by_value_and_norm(truth):
    def clip(parameters):
        parameters = list(parameters)
        nn.utils.clip_grad_value_(parameters, 0.01)
        nn.utils.clip_grad_norm_(parameters, 0.01)

    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        truth.step(grad_norm=norm_of(model.parameters()), clips=2)
        clip(model.parameters())
        optimizer.step()


def clipped_by_its_largest(truth):
    clipped(truth, lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.1, norm_type=math.inf))


def clipped_with_a_known_norm(truth):
    def clip(parameters):
        parameters = list(parameters)
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        nn.utils.clip_grads_with_norm_(parameters, 0.1, norm)

    if hasattr(nn.utils, "clip_grads_with_norm_"):
        clipped(truth, clip, clip_max_norm=0.1)


def clipped_twice(truth):
    """What the second clip returns is the norm after the first one. Parts of a model that are clipped add up."""
    model = classifier()
    optimizer = adam(model)
    for number, (x, y) in enumerate(loaded()):
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        truth.step(grad_norm=norm_of(model.parameters()), clips=2)
        first, second = (model, model) if number % 2 else (model[0], model[3])
        nn.utils.clip_grad_norm_(first.parameters(), 0.1)
        nn.utils.clip_grad_norm_(second.parameters(), 0.05)
        optimizer.step()


# Precision


def scaled(truth):
    model = classifier()
    optimizer = adam(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for number, (x, y) in enumerate(loaded()):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        factor = scaler.get_scale()
        scaler.scale(loss).backward()
        if number == 3:
            model[0].weight.grad[0, 0] = math.inf
        scaler.unscale_(optimizer)
        norm = {} if number == 3 else {"grad_norm": norm_of(model.parameters())}
        truth.step(loss=loss.item(), scale=factor, skipped=number == 3, losses_scaled=1, scaler_use=2, **norm)
        scaler.step(optimizer)
        scaler.update()


def bfloat16(truth):
    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = functional.cross_entropy(model(x), y)
        loss.backward()
        truth.step(loss=loss.item(), autocast=2, grad_norm=norm_of(model.parameters()))
        optimizer.step()


# Several models


def adversarial(truth, together=False):
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=0.01)
    second = torch.optim.Adam(generator.parameters(), lr=0.02)
    bce = functional.binary_cross_entropy_with_logits
    for x, _ in loaded():
        fake = generator(torch.randn(len(x), 4))
        first.zero_grad()
        real_loss = bce(critic(x), torch.ones(len(x), 1))
        fake_loss = bce(critic(fake.detach()), torch.zeros(len(x), 1))
        (real_loss + fake_loss).backward()
        truth.step(
            0, loss=(real_loss + fake_loss).item(), backwards=1, batch_size=len(x), lr=0.01,
            grad_norm=norm_of(critic.parameters()),
        )  # fmt: skip
        first.step()
        second.zero_grad()
        loss = bce(critic(fake), torch.ones(len(x), 1))
        loss.backward()
        truth.step(
            1, loss=loss.item(), backwards=1, batch_size=len(x), lr=0.02, grad_norm=norm_of(generator.parameters())
        )
        second.step()


def adversarial_in_two_backwards(truth):
    """The critic's loss in two backwards, as the tutorial of torch has it."""
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=0.01)
    second = torch.optim.Adam(generator.parameters(), lr=0.02)
    bce = functional.binary_cross_entropy_with_logits
    for x, _ in loaded():
        critic.zero_grad()
        real_loss = bce(critic(x), torch.ones(len(x), 1))
        real_loss.backward()
        fake = generator(torch.randn(len(x), 4))
        fake_loss = bce(critic(fake.detach()), torch.zeros(len(x), 1))
        fake_loss.backward()
        truth.step(
            0,
            loss=(real_loss + fake_loss).item(),
            backwards=2,
            batch_size=len(x),
            grad_norm=norm_of(critic.parameters()),
        )
        first.step()
        generator.zero_grad()
        loss = bce(critic(fake), torch.ones(len(x), 1))
        loss.backward()
        truth.step(1, loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm_of(generator.parameters()))
        second.step()


def adversarial_generator_first(truth):
    """Both losses go backward, then both optimizers step."""
    generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(), nn.Linear(8, 1))
    first = torch.optim.Adam(critic.parameters(), lr=0.01)
    second = torch.optim.Adam(generator.parameters(), lr=0.02)
    bce = functional.binary_cross_entropy_with_logits
    for x, _ in loaded():
        first.zero_grad()
        second.zero_grad()
        fake = generator(torch.randn(len(x), 4))
        critic.requires_grad_(False)
        loss = bce(critic(fake), torch.ones(len(x), 1))
        loss.backward()
        critic.requires_grad_(True)
        both = bce(critic(x), torch.ones(len(x), 1)) + bce(critic(fake.detach()), torch.zeros(len(x), 1))
        both.backward()
        truth.step(0, loss=both.item(), backwards=1, grad_norm=norm_of(critic.parameters()))
        first.step()
        truth.step(1, loss=loss.item(), backwards=1, grad_norm=norm_of(generator.parameters()))
        second.step()


def two_in_turn(truth):
    one, other = classifier(), classifier()
    first, second = adam(one), torch.optim.SGD(other.parameters(), lr=0.1)
    for x, y in loaded():
        for number, (model, optimizer) in enumerate(((one, first), (other, second))):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            norm = norm_of(model.parameters())
            truth.step(number, loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm)
            optimizer.step()


def two_heads(truth):
    """Two optimizers for one loss that runs through two models."""
    body, head = nn.Linear(8, 8), nn.Linear(8, CLASSES)
    first, second = adam(body), adam(head)
    for x, y in loaded():
        first.zero_grad()
        second.zero_grad()
        loss = functional.cross_entropy(head(body(x).relu()), y)
        loss.backward()
        for number, (optimizer, model) in enumerate(((first, body), (second, head))):
            norm = norm_of(model.parameters())
            truth.step(number, loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm)
            optimizer.step()


# Other ways to step


def closure(truth):
    """LBFGS evaluates the loss several times in a step; the first is the step's."""
    model = nn.Linear(8, CLASSES)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x, y = data(24)
    for _ in range(STEPS):
        values = []

        def evaluate(values=values):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            values.append(loss.item())
            return loss

        optimizer.step(evaluate)
        truth.step(loss=values[0], backwards=len(values))


def gradients_assigned(truth):
    """No backward: a loss of the training before is not this one's."""
    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        loss = functional.cross_entropy(model(x), y)
        parameters = list(model.parameters())
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        truth.step(loss=None, backwards=0, grad_norm=norm_of(parameters))
        optimizer.step()


def recurrent(truth):
    """Truncated backpropagation through time: a cell that is called for every position, a backward every three."""
    cell, head = nn.GRUCell(8, 8), nn.Linear(8, CLASSES)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=0.01)
    x, y = torch.randn(9, SIZE, 8), torch.randint(0, CLASSES, (9, SIZE))
    for _ in range(2):
        state = torch.zeros(SIZE, 8)
        for begin in range(0, 9, 3):
            optimizer.zero_grad()
            loss = 0
            for at in range(begin, begin + 3):
                state = cell(x[at], state)
                loss = loss + functional.cross_entropy(head(state), y[at])
            loss.backward()
            norm = norm_of([*cell.parameters(), *head.parameters()])
            truth.step(loss=loss.item(), backwards=1, batch_size=SIZE, grad_norm=norm)
            optimizer.step()
            state = state.detach()


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.recurrence, self.head = nn.LSTM(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x):
        return self.head(self.recurrence(x)[0])


def sequence_first(truth):
    model = Sequences()
    optimizer = adam(model)

    def collate(samples):
        return torch.stack([x for x, _ in samples], 1), torch.stack([y for _, y in samples], 1)

    samples = TensorDataset(torch.randn(20, 11, 8), torch.randint(0, CLASSES, (20, 11)))
    for x, y in DataLoader(samples, batch_size=SIZE, collate_fn=collate):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        truth.step(loss=loss.item(), batch_size=x.shape[1], grad_norm=norm_of(model.parameters()))
        optimizer.step()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters = nn.Conv2d(3, 2, 3)

    def forward(self, images, targets):
        found = torch.stack([self.filters(image[None]).mean() for image in images])
        return {"place": functional.mse_loss(found, torch.stack([one["at"] for one in targets]))}


def images_of_different_sizes(truth):
    """As torchvision's detectors take them: not stacked, a tensor for each sample."""
    samples = [(torch.randn(3, 8 + number % 3, 9), {"at": torch.tensor(float(number))}) for number in range(10)]
    model = Detector()
    optimizer = adam(model)
    for images, targets in DataLoader(samples, batch_size=4, collate_fn=lambda batch: tuple(zip(*batch, strict=True))):
        optimizer.zero_grad()
        loss = sum(model(images, targets).values())
        loss.backward()
        truth.step(loss=loss.item(), batch_size=len(images), microbatches=1, loader_batches=1)
        optimizer.step()


class Packed(Sequences):
    def forward(self, packed):
        return self.head(self.recurrence(packed)[1][0][0])


def packed_sequences(truth):
    model = Packed()
    optimizer = adam(model)
    for _ in range(STEPS):
        packed = nn.utils.rnn.pack_sequence([torch.randn(9 - number, 8) for number in range(SIZE)])
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(packed), torch.arange(SIZE) % CLASSES)
        loss.backward()
        truth.step(loss=loss.item(), batch_size=SIZE)
        optimizer.step()


def two_views(truth):
    """A contrastive loss: the model sees every batch twice."""
    model = nn.Linear(8, 4)
    optimizer = adam(model)
    for x, _ in loaded():
        optimizer.zero_grad()
        one, other = model(x + 0.1 * torch.randn_like(x)), model(x + 0.1 * torch.randn_like(x))
        loss = functional.cross_entropy(one @ other.T, torch.arange(len(x)))
        loss.backward()
        truth.step(loss=loss.item(), batch_size=len(x), backwards=1, grad_norm=norm_of(model.parameters()))
        optimizer.step()


def muon(truth):
    if not hasattr(torch.optim, "Muon"):
        return
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES))
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    first, second = torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(vectors, lr=0.01)
    for x, y in loaded():
        first.zero_grad()
        second.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        for number, (optimizer, held) in enumerate(((first, matrices), (second, vectors))):
            rate = optimizer.param_groups[0]["lr"]
            truth.step(number, loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm_of(held), lr=rate)
            optimizer.step()


def inside_backward(truth):
    model = classifier()
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for x, y in loaded():
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        truth.step(loss=loss.item(), backwards=1, batch_size=len(x), lr=0.01)


# Evaluation


def evaluate(model, batches, function=functional.cross_entropy):
    was, seen, samples = model.training, [], 0
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            seen.append(function(model(x), y).item())
            samples += len(x)
    model.train(was)
    return {"loss": mean(seen), "forwards": len(seen), "losses": len(seen), "samples": samples}


def trained(model, optimizer, batches, truth, **columns):
    for x, y in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        truth.step(loss=loss.item(), batch_size=len(x), loader_batches=1, **columns)
        optimizer.step()


class Judged(nn.Module):
    """Returns its loss, written out by hand, under a name, as models of transformers do that TRL trains."""

    def __init__(self):
        super().__init__()
        self.inner = classifier()

    def forward(self, x, y):
        scores = self.inner(x)
        return {"loss": (scores.logsumexp(1) - scores.gather(1, y[:, None])[:, 0]).mean(), "scores": scores}


def named_in_the_output(truth):
    model = Judged()
    optimizer = adam(model)
    for _ in range(2):
        for x, y in loaded():
            optimizer.zero_grad()
            loss = model(x, y)["loss"]
            loss.backward()
            truth.step(loss=loss.item(), batch_size=len(x))
            optimizer.step()
        model.eval()
        with torch.no_grad():
            seen = [model(x, y)["loss"].item() for x, y in loaded(20, 8, seed=1)]
        model.train()
        truth.evaluated(loss=mean(seen), forwards=3, losses=3, samples=20, loss_is_whole=True)


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.dropout = inner, nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.inner(x))


def another_module_evaluated_last(truth):
    """What holds the trained weights then was never called before, and is gone when the next program's calls come."""
    model = classifier()
    optimizer = adam(model)
    trained(model, optimizer, loaded(), truth)
    truth.evaluated(**evaluate(Around(model), loaded(20, 8, seed=1)), trained=True)


def live_and_averaged(truth):
    model = classifier()
    optimizer = adam(model)
    averaged = torch.optim.swa_utils.AveragedModel(model)
    train, valid = loaded(), loaded(20, 8, seed=1)
    for _ in range(2):
        trained(model, optimizer, train, truth)
        averaged.update_parameters(model)
        truth.evaluated(**evaluate(model, valid), model_in_train=False)
        truth.evaluated(**evaluate(averaged, valid), model_in_train=False)


def live_and_averaged_side_by_side(truth):
    model = classifier()
    optimizer = adam(model)
    averaged = copy.deepcopy(model).eval()
    train, valid = loaded(), loaded(20, 8, seed=1)
    for _ in range(2):
        trained(model, optimizer, train, truth)
        with torch.no_grad():
            for mine, other in zip(averaged.parameters(), model.parameters(), strict=True):
                mine.lerp_(other, 0.5)
        model.eval()
        seen, smooth = [], []
        with torch.no_grad():
            for x, y in valid:
                seen.append(functional.cross_entropy(model(x), y).item())
                smooth.append(functional.cross_entropy(averaged(x), y).item())
        model.train()
        truth.evaluated(loss=mean(seen), forwards=3, samples=20, model_in_train=False)
        truth.evaluated(loss=mean(smooth), forwards=3, samples=20, model_in_train=False)


def two_splits(truth):
    """Splits that no loader holds, one after the other."""
    model = classifier()
    optimizer = adam(model)
    valid, test = [data(8, seed) for seed in (1, 2, 3)], [data(7, seed) for seed in (4, 5)]
    for _ in range(2):
        trained(model, optimizer, loaded(), truth)
        truth.evaluated(**evaluate(model, valid), grad_mode=0)
        truth.evaluated(**evaluate(model, test), grad_mode=0)


def single_forwards(truth):
    """The whole of the training data, then the whole of the validation data."""
    model = classifier()
    optimizer = adam(model)
    x, y = data(32)
    held_x, held_y = data(16, 1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        truth.step(loss=loss.item(), batch_size=32)
        optimizer.step()
        model.eval()
        with torch.no_grad():
            loss = functional.cross_entropy(model(x), y)
            held = functional.cross_entropy(model(held_x), held_y)
        model.train()
        truth.evaluated(loss=loss.item(), forwards=1, samples=32)
        truth.evaluated(loss=held.item(), forwards=1, samples=16)


class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        middle = torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=False)
        return torch.utils.checkpoint.checkpoint(self.second, middle.relu(), use_reentrant=False)


def recomputed(truth):
    model = Recomputed()
    optimizer = adam(model)
    trained(model, optimizer, loaded(), truth, backwards=1, microbatches=1)


def recomputed_reentrant(truth):
    """Checkpointing in the script, in the older way: the recomputation is an outermost call within backward."""
    model = classifier()
    optimizer = adam(model)
    for x, y in loaded():
        optimizer.zero_grad()
        x.requires_grad_()
        loss = functional.cross_entropy(torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True), y)
        loss.backward()
        truth.step(loss=loss.item(), batch_size=len(x), backwards=1, grad_norm=norm_of(model.parameters()))
        optimizer.step()


class Transformed(torch.utils.data.Dataset):
    """Every sample goes through a module."""

    def __init__(self, samples):
        self.samples, self.transform = samples, nn.Sequential(nn.LayerNorm(8), nn.Dropout(0.1))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        x, y = self.samples[index]
        return self.transform(x).detach(), y


def transformed_by_a_module(truth):
    model = classifier()
    optimizer = adam(model)
    train = DataLoader(Transformed(TensorDataset(*data(30))), batch_size=SIZE)
    valid = DataLoader(Transformed(TensorDataset(*data(16, 1))), batch_size=8)
    for _ in range(2):
        trained(model, optimizer, train, truth)
        truth.evaluated(**evaluate(model, valid))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x):
        middle, spread = self.encoder(x).chunk(2, 1)
        return self.decoder(middle + spread.exp() * torch.randn_like(middle)), middle, spread


def variational(truth):
    """Only one of the two terms of the loss goes through a loss function."""
    model = Autoencoder()
    optimizer = adam(model)
    train, valid = loaded(), loaded(20, 8, seed=1)

    def terms(x):
        output, middle, spread = model(x)
        return functional.mse_loss(output, x), (middle.square() + spread.exp() - 1 - spread).mean()

    for _ in range(2):
        model.train()
        for x, _ in train:
            optimizer.zero_grad()
            loss = sum(terms(x))
            loss.backward()
            truth.step(loss=loss.item(), batch_size=len(x))
            optimizer.step()
        model.eval()
        with torch.no_grad():
            seen = [terms(x)[0].item() for x, _ in valid]
        truth.evaluated(loss=mean(seen), forwards=3, samples=20, loss_is_whole=False)


IDIOMS = (
    plain, divided_by_targets_of_step, divided_by_a_tensor, part_beside_an_auxiliary_loss,
    written_out_and_divided_by_targets_of_step,
    divided_by_own_targets, divided_by_number,
    one_backward_of_several_forwards, two_roots, clipped_by_norm, clipped_by_value, clipped_by_value_and_norm,
    clipped_by_its_largest, clipped_with_a_known_norm, clipped_twice, scaled,
    bfloat16, adversarial, adversarial_in_two_backwards, adversarial_generator_first, two_in_turn, two_heads, closure,
    gradients_assigned, recurrent, sequence_first, images_of_different_sizes, packed_sequences, two_views,
    muon, inside_backward, another_module_evaluated_last, live_and_averaged, live_and_averaged_side_by_side,
    named_in_the_output,
    two_splits, single_forwards, recomputed, recomputed_reentrant, transformed_by_a_module, variational,
)  # fmt: skip


def tell_all(idioms):
    """Run those idioms that the command line names, or all."""
    torch.set_num_threads(1)
    for idiom in idioms:
        if len(sys.argv) > 1 and idiom.__name__ not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        truth = Truth(idiom.__name__)
        idiom(truth)
        truth.tell()


if __name__ == "__main__":
    tell_all(IDIOMS)
