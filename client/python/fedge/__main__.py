"""python -m fedge init: makes the job of a model."""

import argparse
import sys

import fedge

from . import job, layers
from .errors import Error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fedge", description="Federated learning with trainers in Python.")
    parser.add_argument("--version", action="version", version=f"fedge {fedge.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="write the job of a model", description=(
        "Writes a job for the aggregator and the model's initial values beside it. A torch module becomes a list of layers, "
        "which clients in C train too, or an external model of tensors alone if fedge lacks one of its layers."))
    init.add_argument("--model", required=True, metavar="MODULE:NAME",
                      help="a torch.nn.Module, a dict of arrays, a fitted linear model of scikit-learn, a fedge.Client, "
                           "or a function that makes one")
    init.add_argument("--output", default="job.json", metavar="FILE", help="the job (default: job.json)")
    init.add_argument("--name", help="the job's name (default: the module's)")
    init.add_argument("--rounds", type=int, default=10, help="number of rounds (default: 10)")
    init.add_argument("--clients", type=int, default=2, help="devices that each round waits for (default: 2)")
    form = init.add_mutually_exclusive_group()
    form.add_argument("--layers", action="store_const", dest="form", const="layers", help="fail if fedge lacks a layer")
    form.add_argument("--external", action="store_const", dest="form", const="external", help="always an external model")
    init.add_argument("--input-shape", metavar="N,...",
                      help="shape of an example, without the batch (default: that of 'data' in MODULE)")
    init.add_argument("--input-type", choices=("f32", "u8"),
                      help="type of stored values; u8 is divided by 255 (default: that of 'data', or f32)")
    init.add_argument("--loss", default="CrossEntropyLoss", choices=layers.known_losses(),
                      help="loss of clients in C (default: CrossEntropyLoss)")
    init.add_argument("--force", action="store_true", help="replace FILE")
    args = parser.parse_args()
    try:
        job.main(args.model, args.output, args.force, job.Options(
            args.name, args.rounds, args.clients, args.form, args.input_shape, args.input_type, args.loss))
    except (Error, OSError) as error:
        print(f"fedge: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
