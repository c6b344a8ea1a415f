"""Hugging Face Trainer on a tiny BERT classifier: accumulation, clipping, dropout, an evaluation every epoch.

Arguments: `bf16`; `nan` (the loss turns NaN at a batch); `callback` (with tracelyze's callback).
"""

import sys
import tempfile

import told
import torch
import transformers
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments


class Tokens(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(5, 64, (count, 12), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        row = self.tokens[index]
        return {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": (row[:4].sum() > 136).long()}


class Broken(Trainer):
    calls = 0

    def compute_loss(self, model, inputs, **more):
        found = super().compute_loss(model, inputs, **more)
        loss = found[0] if isinstance(found, tuple) else found
        Broken.calls += model.training
        if Broken.calls > 16:
            loss = loss + torch.log(inputs["labels"].sum() * 0.0 - 1.0)
        return (loss, *found[1:]) if isinstance(found, tuple) else loss


class Steps(TrainerCallback):
    steps = 0

    def on_step_end(self, args, state, control, **more):
        Steps.steps += 1


told.seed()
transformers.set_seed(0)
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        num_labels=2,
    )
)
callbacks = [Steps()]
if "callback" in sys.argv:
    from tracelyze.integrations.transformers import TracelyzeCallback

    callbacks.append(TracelyzeCallback())
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, num_train_epochs=3, per_device_train_batch_size=8, per_device_eval_batch_size=8,
        gradient_accumulation_steps=2, learning_rate=1e-3, eval_strategy="epoch", logging_steps=1, max_grad_norm=1.0,
        save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, bf16="bf16" in sys.argv, seed=0,
        hub_token="hf_" + "Q" * 34,
    )  # fmt: skip
    kind = Broken if "nan" in sys.argv else Trainer
    trainer = kind(model, arguments, train_dataset=Tokens(96, 1), eval_dataset=Tokens(32, 2), callbacks=callbacks)
    trainer.train()
history = trainer.state.log_history
told.tell(
    model,
    steps=Steps.steps,
    losses=[entry["loss"] for entry in history if "loss" in entry],
    norms=[entry["grad_norm"] for entry in history if "grad_norm" in entry],
    rates=[entry["learning_rate"] for entry in history if "learning_rate" in entry],
    evals=[entry["eval_loss"] for entry in history if "eval_loss" in entry],
)
