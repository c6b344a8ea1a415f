"""What truth.py does, with Ignite: its own trainer and evaluator, and an update function written by hand."""

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from torch.nn import functional
from truth import adam, classifier, loaded, mean, norm_of, tell_all


def run(truth, trainer, model):
    """`trainer` notes its steps itself."""

    def note(scores, y):
        loss = functional.cross_entropy(scores, y)
        seen.append(loss.item())
        return loss

    seen = []
    evaluator = create_supervised_evaluator(model, output_transform=lambda x, y, scores: note(scores, y))

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(_):
        seen.clear()
        evaluator.run(loaded(20, 8, seed=1))
        truth.evaluated(loss=mean(seen), forwards=3, losses=3, samples=20, model_in_train=False, grad_mode=0)

    trainer.run(loaded(45), max_epochs=2)


def supervised(truth, every=1):
    """Ignite divides the loss by the number of micro-batches; 8 batches an epoch."""
    model = classifier()
    optimizer = adam(model)
    values, sizes = [], []

    def criterion(scores, y):
        loss = functional.cross_entropy(scores, y)
        if model.training:
            values.append(loss.item())
            sizes.append(len(y))
        return loss

    def note(*_):
        truth.step(
            loss=mean(values),
            backwards=len(values),
            microbatches=len(values),
            batch_size=sum(sizes),
            loader_batches=len(values),
            grad_norm=norm_of(model.parameters()),
            lr=0.01,
            model_in_train=True,
            clips=None,
        )
        values.clear()
        sizes.clear()

    optimizer.register_step_pre_hook(note)
    run(truth, create_supervised_trainer(model, optimizer, criterion, gradient_accumulation_steps=every), model)


def supervised_with_accumulation(truth):
    supervised(truth, every=4)


def by_hand(truth):
    model = classifier()
    optimizer = adam(model)

    def update(_, batch):
        x, y = batch
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        norm = norm_of(model.parameters())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        truth.step(loss=loss.item(), backwards=1, batch_size=len(x), grad_norm=norm, lr=0.01, clips=1, loader_batches=1)
        optimizer.step()

    run(truth, Engine(update), model)


IDIOMS = (supervised, supervised_with_accumulation, by_hand)

if __name__ == "__main__":
    tell_all(IDIOMS)
