"""examples/lora: its jobs load, its scripts compile, and its table and curve are those of its results. Where
transformers and peft are installed, two rounds of both kinds on a tiny base model: test_lora.py Federation.
"""

import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["FEDGE_SOURCE_DIR"]
BIN = os.environ["FEDGE_BIN_DIR"]
FOLDER = os.path.join(SOURCE, "examples", "lora")
PARAMETERS = {"ffa": 184320, "factors": 460800}
NEEDED = ("torch", "transformers", "peft")
SKIPPED = 77


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


class LoraTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="fedge-lora-")
        self.addCleanup(folder.cleanup)
        self.example = os.path.join(folder.name, "lora")
        shutil.copytree(FOLDER, self.example)

    def path(self, *parts):
        return os.path.join(self.example, *parts)

    def run_script(self, *arguments, **environment):
        done = subprocess.run([sys.executable, "-B", *arguments], text=True, capture_output=True, timeout=1800, cwd=self.example,
                              env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **environment})
        self.assertEqual(done.returncode, 0, done.stderr[-6000:])
        return done.stdout


def write_zeros(path, tensors):
    """A safetensors file."""
    header, offset = {}, 0
    for tensor in tensors:
        size = 4 * tensor["shape"][0] * tensor["shape"][1]
        header[tensor["name"]] = {"dtype": "F32", "shape": tensor["shape"], "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + bytes(offset))


class Files(LoraTest):
    def test_the_aggregator_takes_the_jobs(self):
        subprocess.run([os.path.join(BIN, "fedge-keys"), "demo", "--out", self.path("keys"), "--clients", "4"], check=True,
                       capture_output=True)
        readme = read(self.path("README.md"))
        for kind, parameters in PARAMETERS.items():
            job = json.loads(read(self.path(f"{kind}.json")))
            tensors = job["model"]["tensors"]
            self.assertEqual(sum(tensor["shape"][0] * tensor["shape"][1] for tensor in tensors), parameters)
            self.assertIn(f"{parameters:,}", readme)
            self.assertEqual(job["config"], {"lora": kind})
            if "initial-model" in job:
                write_zeros(self.path(job["initial-model"]), tensors)
            done = subprocess.run([os.path.join(BIN, "fedge-aggregator"), "--job", self.path(f"{kind}.json"), "--identity",
                                   self.path("keys/server"), "--trust", self.path("keys/trust"), "--registry",
                                   self.path("keys/registry"), "--check-config"], text=True, capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_scripts_compile(self):
        scripts = [name for name in os.listdir(self.example) if name.endswith(".py")]
        self.assertEqual(len(scripts), 5)
        for name in scripts:
            compile(read(self.path(name)), name, "exec")

    def test_table_and_curve_are_those_of_the_results(self):
        if not os.path.exists(self.path("results.json")):
            self.skipTest("there are no results yet")
        before = {name: read(self.path(name)) for name in ("README.md", "curve.svg")}
        write(self.path("curve.svg"), "")
        write(self.path("README.md"), re.sub(r"(<!-- table -->\n\n).*?(\n\n<!-- end)", r"\1\2", before["README.md"], flags=re.DOTALL))
        self.run_script("curve.py")
        self.assertEqual({name: read(self.path(name)) for name in before}, before)
        for figures in json.loads(read(self.path("results.json"))).values():
            last = [row["loss"] for row in figures["rounds"] if row["phase"] == "evaluate"][-1]
            self.assertLess(math.exp(last), 0.8 * figures["perplexity"]["base"])


class Federation(LoraTest):
    """Two rounds with a Llama of two layers that has learnt nothing, and a tokenizer of single bytes."""

    BASE = """
import sys, torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
torch.manual_seed(1)
config = LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
                     num_key_value_heads=1, tie_word_embeddings=True, bos_token_id=0, eos_token_id=0)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(sys.argv[1])
"""

    def make_job(self, kind, environment):
        """For the tiny base model, as the README says."""
        made = self.path("made.json")
        self.run_script("-m", "fedge", "init", "--model", f"client:{kind}", "--output", made, "--force", **environment)
        job = json.loads(read(self.path(f"{kind}.json")))
        job["model"] = json.loads(read(made))["model"]
        job["rounds"].update({"num-server-rounds": 2})
        write(self.path(f"{kind}.json"), json.dumps(job))
        return len(job["model"]["tensors"])

    def test_both_kinds_learn_and_peft_loads_the_adapters(self):
        sys.path.insert(0, os.path.join(SOURCE, "tests", "net"))
        import harness
        environment = {"LORA_BASE": self.path("base"), "PYTHONPATH": os.path.join(os.environ["FEDGE_BINARY_DIR"], "python"),
                       "LORA_SERVER": f"127.0.0.1:{harness.reserve_ports(1)}", "OMP_NUM_THREADS": "1"}
        self.run_script("-c", self.BASE, self.path("base"), **environment)
        self.assertEqual([self.make_job(kind, environment) for kind in PARAMETERS], [4, 8])
        write(self.path("text.txt"), "To be, or not to be, that is the question.\n" * 400)
        self.run_script("run.py", "text.txt", "out", **environment)
        for kind in PARAMETERS:
            figures = json.loads(read(self.path("out", kind, "figures.json")))
            self.assertEqual([(row["phase"], row["clients"]) for row in figures["rounds"]], [("train", 4), ("evaluate", 4)] * 2)
            with self.subTest(kind):
                self.assertLess(figures["perplexity"]["adapter"], figures["perplexity"]["base"])
                self.assertAlmostEqual(math.log(figures["perplexity"]["adapter"]), figures["rounds"][-1]["loss"], 5)
                self.assertTrue(os.path.exists(self.path("out", kind, "adapter", "adapter_model.safetensors")))
        self.run_script("curve.py", "out")
        self.assertIn("| `factors` |", read(self.path("README.md")))


if __name__ == "__main__":
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if "Federation" in sys.argv[1:] and missing:
        print(f"skipped: {sys.executable} has no {', '.join(missing)} (pip install -r examples/lora/requirements.txt)")
        raise SystemExit(SKIPPED)
    unittest.main(argv=sys.argv[:1] + (sys.argv[1:] or ["Files"]), verbosity=2)
