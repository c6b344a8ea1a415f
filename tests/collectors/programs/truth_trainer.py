"""What truth.py does, with the Hugging Face Trainer: each idiom is a training of its own."""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from truth import Truth, mean, norm_of

LENGTH, SAMPLES, VALIDATION = 8, 20, 9


def tokens(count, seed):
    """Sequences of which a different number of targets counts in each."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(3, 32, (count, LENGTH), generator=generator)
    targets = rows.clone()
    for row in range(count):
        targets[row, : row % 5] = -100
    return [{"input_ids": one, "labels": other} for one, other in zip(rows, targets, strict=True)]


def tiny(**settings):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=32, max_position_embeddings=16, **sizes, **settings))


class Told(Trainer):
    """Notes what its own loop sees."""

    truth: Truth
    columns: dict

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.values.append(loss.item())
        self.sizes.append(len(inputs["input_ids"]))
        self.norm = norm_of(model.parameters())
        return loss

    def optimizer_steps(self, args, state, control, optimizer=None, **more):
        count = len(self.values)
        self.truth.step(
            loss=self.step_loss(self.values),
            backwards=count,
            microbatches=count,
            batch_size=sum(self.sizes),
            grad_norm=self.norm,
            lr=optimizer.param_groups[0]["lr"],
            loader_batches=count,
            model_in_train=True,
            clips=1,
            clip_max_norm=args.max_grad_norm,
            grads_none=0,
            grads_carried=0,
            **self.columns,
        )
        self.values, self.sizes = [], []

    def step_loss(self, values):
        return sum(values)  # each was divided already

    def prediction_step(self, model, inputs, *args, **more):
        found = super().prediction_step(model, inputs, *args, **more)
        self.seen.append(found[0].item())
        self.held.append(len(inputs["input_ids"]))
        return found

    def evaluate(self, *args, **more):
        self.seen, self.held = [], []
        found = super().evaluate(*args, **more)
        count = len(self.seen)
        self.truth.evaluated(
            loss=mean(self.seen), forwards=count, losses=count, samples=sum(self.held), model_in_train=False,
            grad_mode=0, trained=True,
        )  # fmt: skip
        return found


class Ignores(Told):
    """The fault of October 2024: each micro-batch is divided by its own targets only, and nobody divides further."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**inputs)
        return (outputs.loss, outputs) if return_outputs else outputs.loss

    step_loss = staticmethod(mean)


def run(truth, kind=Told, columns=None, samples=SAMPLES, **settings):
    from transformers import TrainerCallback

    class Steps(TrainerCallback):
        def on_pre_optimizer_step(self, *args, **more):
            trainer.optimizer_steps(*args, **more)

    usual = {
        "per_device_train_batch_size": 2, "per_device_eval_batch_size": 4, "num_train_epochs": 2, "max_grad_norm": 0.5,
        "learning_rate": 1e-2, "eval_strategy": "epoch", "logging_steps": 1, "save_strategy": "no", "report_to": [],
        "disable_tqdm": True, "use_cpu": True, "seed": 0,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, **usual | settings)
        trainer = kind(
            tiny(), arguments, train_dataset=tokens(samples, 1), eval_dataset=tokens(VALIDATION, 2),
            callbacks=[Steps()],
        )  # fmt: skip
        trainer.truth, trainer.values, trainer.sizes, trainer.columns = truth, [], [], columns or {}
        trainer.train()


def without_accumulation(truth):
    run(truth, columns={"autocast": 0})


def with_accumulation(truth):
    """10 batches an epoch: the last step has two of them."""
    run(truth, gradient_accumulation_steps=4)


def in_bfloat16(truth):
    run(truth, columns={"autocast": 2}, bf16=True, gradient_accumulation_steps=2)


def with_checkpointing(truth):
    run(truth, gradient_accumulation_steps=2, gradient_checkpointing=True)


def ignoring_the_number_of_items(truth):
    run(truth, Ignores, samples=24, gradient_accumulation_steps=4, num_train_epochs=5, optim="sgd")


IDIOMS = (without_accumulation, with_accumulation, in_bfloat16, with_checkpointing, ignoring_the_number_of_items)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.stdout, printed = sys.stderr, sys.stdout  # the Trainer prints what it logs
    for idiom in IDIOMS:
        if len(sys.argv) > 1 and idiom.__name__ not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        truth = Truth(idiom.__name__)
        idiom(truth)
        sys.stdout = printed
        truth.tell()
        sys.stdout = sys.stderr
