"""Everything that nobody could measure without a GPU, in one command: correctness, speed and memory.

    python benchmarks/on_gpu.py

It needs no network, and is meant to take less than 8 minutes on a GPU. Models have random weights, and lengths are distributed
like those of short sentences and of long reviews. It prints a table and writes ``on_gpu.json``: please paste both into an issue.
Parts that fail are reported, and the others run. Needs ``accelerate`` for the comparison with Trainer.

- equality: the same runs on this device and on its CPU.
- stacked: runs in a stack and alone.
- throughput: training steps of stacks of K runs.
- forward pass: what share of this device's fastest matrix product it reaches.
- llama: a training step of a model with 1 billion parameters, if memory allows.
- grid: 7 values of k x 5 seeds x 5 learning rates with frostline and with transformers' Trainer.

``--size tiny --device cpu`` tries the script itself.
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np
import speed_report
import torch
import versus_trainer
from measuring import Facts, machine, markdown
from random_context import context_of, lengths_like, spec_of, switch_dropout_off, with_states
from random_model import SIZES
from transformers import AutoModelForSequenceClassification, BertConfig, LlamaConfig, PreTrainedModel

from frostline.model.device import CPU, Machine, this_machine
from frostline.model.memory import memory_limit, peak_memory
from frostline.training.context import RunContext
from frostline.training.result import Result
from frostline.training.run import run, run_stacked
from frostline.training.step_profile import profile_step

TRAIN, VALIDATION, BATCH = 64, 32, 16
STACKS = {"tiny": (1, 2), "bert-base": (1, 2, 4, 8, 16, 32)}
BILLION = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
MEMORY_OF_LLAMA = 30 << 30  # bytes that its part may need
EXACT, NOISE = 1e-4, 0.1  # the largest relative difference in float32, and in the precision of the device

Rows = list[tuple[str, str]]  # what was measured, and its value


class OnDevice:
    """The parts of this benchmark. Each returns rows for the table."""

    def __init__(self, size: str, here: Machine) -> None:
        self.size, self.here = size, here
        self.layers, self.width, self.heads, self.vocabulary = SIZES[size]
        self.exact = Machine(here.device, "float32")

    def bert(self) -> PreTrainedModel:
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.width,
        )
        model: PreTrainedModel = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
        return model

    def context(
        self, where: Machine, kind: str = "short", examples: int = TRAIN, *, dropout: bool = False
    ) -> RunContext:
        model = self.bert()
        if not dropout:
            switch_dropout_off(model)
        return context_of(model, lengths_like(kind, examples + VALIDATION), where, validation=VALIDATION)

    def equality(self) -> Rows:
        """Runs from cached hidden states and of the whole model, without dropout."""
        rows: Rows = []
        for tune in (min(2, self.layers), "all"):
            spec = spec_of(tune, TRAIN, num_train_epochs=1)
            results = [self._run(spec, where) for where in (Machine(CPU, "float32"), self.exact, self.here)]
            for where, result, limit in (("float32", results[1], EXACT), (self.here.precision, results[2], NOISE)):
                gap = difference(result, results[0])
                rows.append((f"k = {tune}, {where} against the CPU", f"{gap:.1e} ({_verdict(gap, limit)})"))
            if tune != "all":
                gap = difference(self._run(spec, self.exact, copies=True), results[1])
                rows.append((f"k = {tune}, hidden states in GPU memory", f"{gap:.1e} ({_verdict(gap, EXACT)})"))
        return rows

    def _run(self, spec: object, where: Machine, *, copies: bool = False) -> Result:
        """A run. With ``copies``, its hidden states are copied to the device as a whole, else batch by batch."""
        context = self.context(where)
        context.copies.keep_within(1 << 40 if copies else 0)
        tune = spec.tune  # type: ignore[attr-defined]
        cut = None if tune == "all" else self.layers - tune
        return run(spec, context if cut is None else with_states(context, (cut,)))  # type: ignore[arg-type]

    def stacked(self) -> Rows:
        context = self.context(self.exact)
        specs = [
            spec_of("all", TRAIN, seed=seed, learning_rate=1e-5 * (seed + 1), num_train_epochs=1) for seed in range(3)
        ]
        alone = [run(spec, context) for spec in specs]
        together = run_stacked(specs, context, batched=True)
        gap = max(difference(one, other) for one, other in zip(together, alone, strict=True))
        return [("3 runs in a stack against each alone", f"{gap:.1e} ({_verdict(gap, EXACT)})")]

    def throughput(self) -> Rows:
        tune = min(2, self.layers)
        context = self.context(self.here, examples=8 * BATCH, dropout=True)
        context, rows, first = with_states(context, (self.layers - tune,)), [], 0.0
        for count in STACKS[self.size]:
            seconds, used = profile_step(
                [spec_of(tune, 8 * BATCH, seed=seed) for seed in range(count)], context, steps=8
            )
            rate = count * BATCH / seconds
            first = first or rate
            text = f"{rate:,.0f} examples/s, {rate / first:.1f} times one run, peak {used / 1e9:.1f} GB"
            rows.append((f"stack of {count}, k = {tune}, longest examples", text))
        return rows

    def forward_pass(self) -> Rows:
        """The forward pass over all layers, compared with the fastest large matrix product of the same precision."""
        rows: Rows = []
        side = 512 if self.size == "tiny" else 8192
        with self.here.autocast():
            a = torch.randn(side, side, device=self.here.device)
            a = a.to(self.here.dtype)
            fastest = 2 * side**3 / self._seconds(lambda: a @ a)
        for kind in ("short", "long"):
            examples = 64 if self.size == "tiny" else 8192 if kind == "short" else 1024
            context = self.context(self.here, kind, examples)
            selection = with_states(context, (self.layers,)).states
            assert selection is not None
            whole = context.forward_pass(selection.selection)
            batches = whole.batches(context.tokens.lengths, np.arange(examples))
            with peak_memory(self.here) as peak:
                seconds = self._seconds(lambda: list(whole.hidden_states(context.tokens, batches)), times=2)  # noqa: B023
            done = context.tokens.lengths[:examples]
            work = self.layers * (24 * done.sum() * self.width**2 + 4 * (done**2).sum() * self.width)
            share = f"{work / seconds / fastest:.0%} of {fastest / 1e12:.1f} TFLOP/s"
            rows.append(
                (f"{kind} texts", f"{done.sum() / seconds:,.0f} tokens/s, {share}, peak {peak.bytes / 1e9:.1f} GB")
            )
        return rows

    def _seconds(self, work: Callable[[], object], times: int = 5) -> float:
        found = []
        for _ in range(times):
            begun = self.here.time()
            work()
            found.append(self.here.time() - begun)
        return min(found)

    def llama(self) -> Rows:
        if self.size == "tiny" or memory_limit(self.here.device) < MEMORY_OF_LLAMA:
            return [("1 billion parameters", "left out: there is not enough memory")]
        config = LlamaConfig(**BILLION, intermediate_size=8192, vocab_size=32000, num_labels=2, pad_token_id=0)
        with self.here.device:
            model = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
        context = context_of(model, lengths_like("short", TRAIN + VALIDATION), self.here, validation=VALIDATION)
        rows = []
        for tune in (2, "all"):
            seconds, used = profile_step([spec_of(tune, TRAIN)], context)
            rows.append((f"k = {tune}", f"{seconds * 1e3:.0f} ms a step of {BATCH}, peak {used / 1e9:.1f} GB"))
        return rows

    def grid(self) -> Rows:
        options = argparse.Namespace(
            sides="frostline,trainer-best", repeats=1, trainer_cells=1, random=self.size, stacks=None, resume=None
        )
        settings = {**versus_trainer.RANDOM, "device": self.here.device.type}
        if self.size == "tiny":
            settings |= {"tune": "0,all", "seeds": "1", "learning_rate": "1e-4", "train_size": "32"}
        measured = versus_trainer.measure(options, settings)
        summary = speed_report.summarise(measured["lines"], measured["cells"])
        sentences = speed_report.sentences(summary, measured["machine"], measured["task"])
        return [("frostline and Trainer", sentence) for sentence in sentences]


def difference(one: Result, other: Result) -> float:
    """The largest difference of two runs' validation logits, relative to the largest logit."""
    mine, theirs = one.logits["validation_last"], other.logits["validation_last"]
    return float(np.abs(mine - theirs).max() / np.abs(theirs).max())


def _verdict(gap: float, limit: float) -> str:
    return "good" if gap <= limit else f"TOO LARGE, limit {limit:g}"


def measure(parts: OnDevice, wanted: list[str]) -> list[Facts]:
    """Run the parts. A part that fails has the error as its row."""
    lines: list[Facts] = []
    for name in wanted:
        print(name, file=sys.stderr, flush=True)
        begun = perf_counter()
        try:
            rows = getattr(parts, name)()
        except Exception as error:
            rows = [("FAILED", f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}")]
        seconds = perf_counter() - begun
        lines += [{"part": name, "what": what, "value": value, "part_seconds": seconds} for what, value in rows]
    return lines


def main() -> None:
    names = ("equality", "stacked", "throughput", "forward_pass", "llama", "grid")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=list(SIZES), default="bert-base", help="size of the random BERT")
    parser.add_argument("--device", default="auto", help="auto, cuda, mps or cpu")
    parser.add_argument("--parts", default=",".join(names), help="the parts to run, separated by commas")
    parser.add_argument(
        "--json", type=Path, default=Path("on_gpu.json"), metavar="FILE", help="where to write the results"
    )
    options = parser.parse_args()
    here, wanted = this_machine(options.device), options.parts.split(",")
    if unknown := set(wanted) - set(names):
        sys.exit(f"there is no part {', '.join(sorted(unknown))}: parts are {', '.join(names)}")
    if here.device.type == "cpu" and options.device == "auto":
        sys.exit("There is no GPU here: nothing was measured. --size tiny --device cpu tries the script.")
    torch.backends.cuda.matmul.allow_tf32 = False
    facts = machine()
    lines = measure(OnDevice(options.size, here), wanted)
    options.json.write_text(json.dumps({"machine": facts, "size": options.size, "lines": lines}, indent=1) + "\n")
    print(", ".join(f"{name} {value}" for name, value in facts.items()), end="\n\n")
    print(markdown(("part", "what", "result"), [(line["part"], line["what"], line["value"]) for line in lines]))
    sys.exit(any(line["what"] == "FAILED" or "TOO LARGE" in line["value"] for line in lines))


if __name__ == "__main__":
    main()
