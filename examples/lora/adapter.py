"""Makes a PEFT adapter of a run, and loads it: python adapter.py RUN OUT TEXTS...

RUN is an aggregator's --state. OUT gets adapter_model.safetensors and adapter_config.json. The last line is JSON: the
perplexity of the base model, and with the adapter that PEFT has loaded, on what the folders TEXTS hold out.
"""

import json
import math
import sys
from pathlib import Path

import client
import fedge
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM


def export(run, out):
    run = fedge.Run(run)
    job = json.loads(Path(run.path, "job.json").read_text(encoding="utf-8"))
    model = client.make_model(job["config"]["lora"], job["seed"])
    unexpected = model.load_state_dict(run.state_dict(), strict=False).unexpected_keys
    if unexpected:
        raise SystemExit(f"adapter.py: the run's model has tensors that this one lacks, such as {unexpected[0]}")
    model.save_pretrained(out)


def perplexity(model, folders):
    losses = [client.evaluate_on(model, client.examples(folder)[1])["loss"] for folder in folders]
    return math.exp(sum(losses) / len(losses))


def main(run, out, folders):
    export(run, out)
    model = AutoModelForCausalLM.from_pretrained(client.BASE, dtype=torch.float32)
    before = perplexity(model, folders)
    after = perplexity(PeftModel.from_pretrained(model, out), folders)
    print(json.dumps({"base": before, "adapter": after}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
