"""What truth.py does, with Accelerate: its loaders fetch one batch ahead, its backward divides."""

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.nn import functional
from truth import adam, classifier, loaded, mean, norm_of, tell_all


def loop(truth, every=1, precision="no", clip=True, epochs=2, **columns):
    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=every, mixed_precision=precision)
    model = classifier()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    model, optimizer, scheduler, train, valid = accelerator.prepare(
        model, optimizer, scheduler, loaded(45), loaded(20, 8, seed=1)
    )
    for _ in range(epochs):
        model.train()
        values, samples = [], 0
        for x, y in train:
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                values.append(loss.item())
                samples += len(x)
                if accelerator.sync_gradients:
                    truth.step(
                        loss=mean(values),
                        backwards=len(values),
                        microbatches=len(values),
                        batch_size=samples,
                        loader_batches=len(values),
                        grad_norm=norm_of(model.parameters()),
                        lr=optimizer.param_groups[0]["lr"],
                        model_in_train=True,
                        clips=int(clip),
                        grads_carried=0,
                        **columns,
                    )
                    values, samples = [], 0
                    if clip:
                        accelerator.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        model.eval()
        seen, samples = [], 0
        with torch.no_grad():
            for x, y in valid:
                scores, targets = accelerator.gather_for_metrics((model(x), y))
                seen.append(functional.cross_entropy(scores, targets).item())
                samples += len(y)
        truth.evaluated(
            loss=mean(seen),
            forwards=len(seen),
            losses=len(seen),
            samples=samples,
            model_in_train=False,
            grad_mode=0,
            trained=True,
        )


def without_accumulation(truth):
    loop(truth, autocast=0)


def with_accumulation(truth):
    """8 batches an epoch: the last step has two of them."""
    loop(truth, every=3, clip_max_norm=0.1)


def with_one_left_over(truth):
    """The last step of an epoch has one of the 8 batches, whose loss is divided by 7 all the same."""
    loop(truth, every=7, epochs=12)


def in_bfloat16(truth):
    loop(truth, precision="bf16", autocast=2)


def long_enough_to_settle(truth):
    loop(truth, clip=False, epochs=8)


IDIOMS = (without_accumulation, with_accumulation, with_one_left_over, in_bfloat16, long_enough_to_settle)

if __name__ == "__main__":
    tell_all(IDIOMS)
