"""What truth.py does, with PEFT and TRL: adapters under checkpointing, supervised, by preferences and by rewards."""

import os
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, TrainerCallback
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
from truth import Truth, norm_of
from truth_trainer import tiny

WORDS = [f"w{number}" for number in range(29)]


def tokenizer():
    ids = {word: number for number, word in enumerate(["<pad>", "<s>", "</s>", *WORDS])}
    plain = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    made.chat_template = "{% for one in messages %}{{ one.content }} {% endfor %}"
    return made


def text(number, words):
    return " ".join(WORDS[(number * 7 + at * 3) % len(WORDS)] for at in range(words))


def told(kind):
    """The trainer `kind`, which notes what its own loop sees."""

    class Told(kind):
        def training_step(self, model, inputs, num_items_in_batch=None):
            loss = super().training_step(model, inputs, num_items_in_batch)
            self.values.append(loss.item())
            self.norm = norm_of(model.parameters())
            return loss

        def note(self, args, optimizer):
            self.truth.step(
                loss=sum(self.values),
                backwards=len(self.values),
                grad_norm=self.norm,
                lr=optimizer.param_groups[0]["lr"],
                clips=1,
                model_in_train=True,
                grads_none=0,
                grads_carried=0,
            )
            self.values = []

        def prediction_step(self, model, inputs, *args, **more):
            found = super().prediction_step(model, inputs, *args, **more)
            self.seen.append(found[0].item())
            return found

        def evaluate(self, *args, **more):
            self.seen = []
            found = super().evaluate(*args, **more)
            count = len(self.seen)
            self.truth.evaluated(
                forwards=count,
                losses=count,
                loss=sum(self.seen) / count,
                model_in_train=False,
                grad_mode=0,
                trained=True,
            )
            return found

    return Told


def run(truth, kind, config, rows, adapters=None, evaluated=True, settings=None, **more):
    class Steps(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, optimizer=None, **others):
            trainer.note(args, optimizer)

    usual = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 2,
        "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no", "report_to": [], "disable_tqdm": True,
        "use_cpu": True, "bf16": False, "seed": 0, "eval_strategy": "epoch" if evaluated else "no",
        "per_device_eval_batch_size": 2, "max_grad_norm": 0.5,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        arguments = config(output_dir=folder, **usual | (settings or {}))
        given = {"train_dataset": Dataset.from_list(rows), "processing_class": tokenizer(), "peft_config": adapters}
        if evaluated:
            given["eval_dataset"] = Dataset.from_list(rows[:4])
        trainer = told(kind)(model=tiny(), args=arguments, callbacks=[Steps()], **given, **more)
        trainer.truth, trainer.values = truth, []
        trainer.train()


def supervised(truth):
    run(truth, SFTTrainer, SFTConfig, [{"text": text(number, 3 + number % 5)} for number in range(12)])


def adapters_with_checkpointing(truth):
    rows = [{"text": text(number, 3 + number % 5)} for number in range(12)]
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    run(truth, SFTTrainer, SFTConfig, rows, lora, settings={"gradient_checkpointing": True})


def preferences(truth):
    truth.evals = None  # the reference model's forwards are passes, too
    rows = [
        {"prompt": text(number, 3), "chosen": text(number + 1, 3), "rejected": text(number + 2, 2)}
        for number in range(12)
    ]
    run(truth, DPOTrainer, DPOConfig, rows, ref_model=tiny())


def rewards(truth):
    truth.evals = None  # the forwards of generation: rows of theirs are not told apart here

    def reward(completions, **_):
        return [float(len(set(one.split()))) for one in completions]

    rows = [{"prompt": text(number, 3)} for number in range(8)]
    settings = {"num_generations": 2, "max_completion_length": 4, "num_train_epochs": 1}
    run(truth, GRPOTrainer, GRPOConfig, rows, evaluated=False, settings=settings, reward_funcs=reward)


IDIOMS = (supervised, adapters_with_checkpointing, preferences, rewards)

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
