"""What alive.py does, with the frameworks that the command line names: each trains several models in turn.

Frameworks keep some of what they made last, as plain Python shows: what counts is whether recording adds to that.
"""

import gc
import logging
import os
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

TRAININGS = 3


def made():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))


def loaded():
    return DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 1)), batch_size=4)


class Regression(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = made()

    def forward(self, x, y):
        return {"loss": functional.mse_loss(self.net(x), y)}


def trainer():
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            num_train_epochs=2,
            save_strategy="epoch",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            logging_steps=1,
            eval_strategy="epoch",
            prediction_loss_only=True,
        )
        samples = [{"x": torch.randn(4), "y": torch.randn(1)} for _ in range(24)]
        Trainer(Regression(), arguments, train_dataset=samples, eval_dataset=samples[:8]).train()


def accelerated():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = made()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, optimizer, loaded())
    for _ in range(3):
        for x, y in loader:
            with accelerator.accumulate(model):
                accelerator.backward(functional.mse_loss(model(x), y))
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    accelerator.free_memory()


def lightning():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = made()

        def training_step(self, batch, index):
            x, y = batch
            return functional.mse_loss(self.net(x), y)

        def validation_step(self, batch, index):
            self.training_step(batch, index)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2, gradient_clip_val=1.0,
    ).fit(Module(), loaded(), loaded())  # fmt: skip


FRAMEWORKS = {"transformers": trainer, "accelerate": accelerated, "lightning": lightning}


def living():
    gc.collect()
    kinds = (torch.Tensor, nn.Module, torch.optim.Optimizer)
    return [type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds)]


warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
printed, sys.stdout = sys.stdout, sys.stderr  # the Trainer prints what it logs
for package in sys.argv[1:]:
    torch.manual_seed(0)
    for _ in range(TRAININGS):
        FRAMEWORKS[package]()
    print(package, len(living()), file=printed)
