"""Fine-tunes by four devices on this machine, over TLS: python run.py TEXT OUT [ffa|factors]...

TEXT is one text file; each device gets a quarter of it. OUT/KIND gets what each kind of LoRA leaves: the run's state,
the adapter, and figures.json, which curve.py draws. BASE is as in client.py. The programs are those on PATH.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CLIENTS = 4
SERVER = os.environ.get("LORA_SERVER", "127.0.0.1:9092")


def make_devices(text, out):
    """Folders of texts and /etc/fedge of each device."""
    lines = text.read_text(encoding="utf-8").splitlines(keepends=True)
    subprocess.run(["fedge-keys", "demo", "--out", out / "keys", "--clients", str(CLIENTS)], check=True)
    for i in range(CLIENTS):
        device = out / f"device-{i}"
        (device / "texts").mkdir(parents=True)
        part = lines[i * len(lines) // CLIENTS : (i + 1) * len(lines) // CLIENTS]
        (device / "texts/part.txt").write_text("".join(part), encoding="utf-8")
        (device / "client.json").write_text(json.dumps({"servers": f"wss://{SERVER}"}), encoding="utf-8")
        (device / "identity").symlink_to(f"../keys/clients/{i:04}")
        (device / "trust").symlink_to("../keys/trust")


def train(out, lora):
    """The federation: seconds, and CPU seconds of the aggregator and of the devices."""
    keys, programs = out / "keys", []
    begin = time.monotonic()

    def start(*command):
        programs.append(subprocess.Popen(command))

    def seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    used = seconds()
    try:
        start("fedge-aggregator", "--job", out / "job.json", "--state", out / "state", "--identity", keys / "server",
              "--trust", keys / "trust", "--registry", keys / "registry", "--listen", SERVER, "--http", "off", "--quiet")
        for i in range(CLIENTS):
            device = out / f"device-{i}"
            start(sys.executable, HERE / "client.py", device, device / "texts", lora)
        while None in (codes := [program.poll() for program in programs]) and not any(codes):
            time.sleep(0.2)
    finally:
        for program in programs:
            program.kill()
            program.wait()
    if any(codes):
        raise SystemExit(f"run.py: the aggregator and the devices ended with {codes}")
    return {"seconds": round(time.monotonic() - begin), "cpu_seconds": round(seconds() - used)}


def main(text, out, kinds):
    for lora in kinds:
        folder = out.resolve() / lora
        folder.mkdir(parents=True)  # a new one
        make_devices(text, folder)
        # Where A is trained the job needs the A to begin with.
        subprocess.run([sys.executable, "-m", "fedge", "init", "--model", f"client:{lora}", "--output", folder / "job.json"],
                       check=True, cwd=HERE)
        shutil.move(folder / "job.safetensors", folder / f"{lora}.safetensors")
        shutil.copy(HERE / f"{lora}.json", folder / "job.json")
        figures = train(folder, lora)
        texts = [folder / f"device-{i}/texts" for i in range(CLIENTS)]
        checked = subprocess.run([sys.executable, HERE / "adapter.py", folder / "state", folder / "adapter", *texts],
                                 check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
        import fedge
        keep = ("round", "phase", "clients", "loss", "train_loss", "bytes_up", "bytes_down")
        rounds = [{key: row.get(key) for key in keep} for row in fedge.Run(folder / "state").records()]
        figures.update(perplexity=json.loads(checked), rounds=rounds)
        (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"wrote {folder}/figures.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or ["ffa", "factors"])
