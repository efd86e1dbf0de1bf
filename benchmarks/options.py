"""The options that benchmarks on a tiny model share."""

import argparse
from pathlib import Path


def parser_of(description: str | None, *, group: int) -> argparse.ArgumentParser:
    """Return a parser of the model, the work and the threads; ``group`` episodes of a task unless told otherwise."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder; by default a random Llama of 2 layers")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--language", default="alfworld")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--group", type=int, default=group)
    parser.add_argument("--reply", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    return parser
