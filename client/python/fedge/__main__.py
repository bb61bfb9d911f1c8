"""python -m fedge init: makes the job of a model."""

import argparse
import sys

from . import job
from .errors import Error


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fedge", description="Federated learning with trainers in Python.")
    commands = parser.add_subparsers(dest="command", required=True)
    init = commands.add_parser("init", help="write the job of a model", description=(
        "Writes a job for the aggregator, of names and shapes of a model's tensors, and their initial values beside it."))
    init.add_argument("--model", required=True, metavar="MODULE:NAME",
                      help="a torch.nn.Module, a dict of arrays, a fitted linear model of scikit-learn, a fedge.Client, "
                           "or a function that makes one")
    init.add_argument("--output", default="job.json", metavar="FILE", help="the job (default: job.json)")
    init.add_argument("--name", help="the job's name (default: the module's)")
    init.add_argument("--rounds", type=int, default=10, help="number of rounds (default: 10)")
    init.add_argument("--clients", type=int, default=2, help="devices that each round waits for (default: 2)")
    init.add_argument("--force", action="store_true", help="replace FILE")
    args = parser.parse_args()
    try:
        job.main(args.model, args.output, args.name, args.rounds, args.clients, args.force)
    except (Error, OSError) as error:
        print(f"fedge: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
