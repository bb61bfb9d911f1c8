"""A device that fine-tunes SmolLM2-135M by LoRA on texts of its own: python client.py DIRECTORY TEXTS [ffa|factors]

DIRECTORY has client.json, identity and trust; the device's state goes there too. TEXTS is a folder of .txt files. The
base model is the folder that base.py makes: $LORA_BASE, or base. It is never sent; the job's model is the adapter.
"""

import math
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import fedge
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

BASE = os.environ.get("LORA_BASE", "base")
TOKENS = 64  # of an example
HELD_OUT = 12  # examples at the end of the texts, which only evaluations see


def draw_a(model, seed):
    """A of W + B A as PEFT draws it, but the same on every device: from the job's seed. B begins with zeros."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_A" in name:
            torch.nn.init.kaiming_uniform_(parameter, a=math.sqrt(5), generator=generator)


def make_model(lora, seed=1):
    """lora: "ffa" trains B alone; "factors" trains A and B, and the server averages each."""
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))
    draw_a(model, seed)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_B" in name or ("lora_A" in name and lora == "factors"))
    return model


def examples(folder):
    """Those to train with, and those held out: token numbers [examples, TOKENS]."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(folder).glob("*.txt")))
    ids = torch.tensor(AutoTokenizer.from_pretrained(BASE)(text)["input_ids"])
    rows = ids[: len(ids) // TOKENS * TOKENS].reshape(-1, TOKENS)
    if len(rows) < 2 * HELD_OUT:
        raise SystemExit(f"{folder} has {len(ids)} tokens in .txt files; {2 * HELD_OUT * TOKENS} are the least")
    return rows[:-HELD_OUT], rows[-HELD_OUT:]


def evaluate_on(model, rows):
    """Mean cross-entropy of the next token, whose exponential is the perplexity, and the fraction that is right."""
    loss = right = 0.0
    with torch.no_grad():
        for x in rows.split(4):
            found = model(input_ids=x, labels=x)
            loss += found.loss.item() * len(x) / len(rows)
            right += (found.logits[:, :-1].argmax(-1) == x[:, 1:]).float().mean().item() * len(x) / len(rows)
    return {"loss": loss, "accuracy": right}


def make_client(lora, texts=None):
    model = make_model(lora)
    app = fedge.Client(model, trainable_only=True)
    rows, held_out = examples(texts) if texts else (None, None)

    @app.train
    def train(model, task):
        if lora == "ffa":
            draw_a(model, task.seed)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=task.learning_rate)
        losses = []
        for (x,) in task.batches((rows,)):
            optimizer.zero_grad()
            loss = model(input_ids=x, labels=x).loss
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return len(rows), {"loss": sum(losses) / len(losses)}

    @app.evaluate
    def evaluate(model, task):
        if lora == "ffa":
            draw_a(model, task.seed)
        return len(held_out), evaluate_on(model, held_out)

    return app


def ffa():  # python -m fedge init --model client:ffa
    return make_client("ffa")


def factors():
    return make_client("factors")


if __name__ == "__main__":
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    make_client(sys.argv[3] if len(sys.argv) > 3 else "ffa", sys.argv[2]).run(sys.argv[1], state=Path(sys.argv[1], "state"))
