"""Everything that nobody could measure without a GPU, in one command: correctness, speed and memory.

    python benchmarks/on_gpu.py [--precision bfloat16]

It needs no network, and is meant to take less than 8 minutes on a GPU. Models have random weights, and lengths are distributed
like those of short sentences and of long reviews. It prints a table and writes ``on_gpu.json``: please paste both into an issue.
Rows appear as they are measured. Parts that fail are reported, and the others run. Needs ``accelerate`` for the comparison with
Trainer.

- equality: the same runs on this device and on its CPU.
- stacked: runs in a stack and alone.
- tags: token classification, against the CPU.
- throughput: training steps of stacks of K runs.
- forward pass: what share of this device's fastest matrix product it reaches.
- llama: a training step of a model with 1 billion parameters, if memory allows.
- grid: 7 values of k x 5 seeds x 5 learning rates with frostline and with transformers' Trainer.

``--size tiny --device cpu`` tries the script itself.
"""

import argparse
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch
from gpu_parts import OnDevice
from measuring import Facts, chosen, machine, markdown
from random_model import SIZES

from frostline.model.device import this_machine

PARTS = ("equality", "stacked", "tags", "throughput", "forward_pass", "llama", "grid")


def measure(parts: OnDevice, wanted: list[str]) -> Iterator[list[Facts]]:
    """Run the parts, and return the rows of each. A part that fails has the error as its row."""
    for name in wanted:
        torch.cuda.empty_cache()  # what the part before it has left, also if it failed
        begun = perf_counter()
        try:
            rows = getattr(parts, name)()
        except Exception as error:
            traceback.print_exc()
            rows = [("FAILED", f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}")]
        seconds = perf_counter() - begun
        yield [{"part": name, "what": what, "value": value, "part_seconds": seconds} for what, value in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="bert-base", help="size of the random BERT")
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu")
    parser.add_argument(
        "--precision", default="auto", help="bfloat16, float16 or float32; auto: bfloat16 if the device has it"
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="the parts to run, separated by commas")
    parser.add_argument(
        "--json", type=Path, default=Path("on_gpu.json"), metavar="FILE", help="where to write the results"
    )
    options = parser.parse_args()
    here, wanted = this_machine(options.device, options.precision), chosen(options.parts, PARTS, "part")
    if here.device.type == "cpu" and options.device == "auto":
        sys.exit("There is no GPU here: nothing was measured. --size tiny --device cpu tries the script.")
    torch.backends.cuda.matmul.allow_tf32 = False
    facts = {**machine(), **here.facts(), "precision": here.precision}
    lines: list[Facts] = []
    for rows in measure(OnDevice(options.size, here), wanted):
        lines += rows
        for row in rows:
            print(f"{row['part']}: {row['what']}: {row['value']}", file=sys.stderr, flush=True)
        options.json.write_text(json.dumps({"machine": facts, "size": options.size, "lines": lines}, indent=1) + "\n")
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    print(markdown(("part", "what", "result"), [(line["part"], line["what"], line["value"]) for line in lines]))
    sys.exit(any(line["what"] == "FAILED" or "TOO LARGE" in line["value"] for line in lines))


if __name__ == "__main__":
    main()
