"""The parts of on_gpu.py. Each returns rows for its table."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import speed_report
import torch
import versus_trainer
from random_context import context_of, lengths_like, spec_of, switch_dropout_off, with_states, with_tags
from random_model import SIZES
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BertConfig,
    LlamaConfig,
    PreTrainedModel,
)

from frostline.model.device import CPU, Machine, memory_limit, memory_ran_out, peak_memory
from frostline.training.experiment import Experiment
from frostline.training.result import Result
from frostline.training.run import Run
from frostline.training.train import profile_step, run, run_stacked

TRAIN, VALIDATION, BATCH = 64, 32, 16
STACKS = {"tiny": (1, 2), "bert-base": (1, 2, 4, 8, 16, 32)}
LLAMA = {  # width, layers, heads, heads of keys, width of the feed-forward part, vocabulary, bytes that its part may need
    "tiny": (32, 2, 4, 2, 64, 1000, 0),
    "bert-base": (2048, 16, 32, 8, 8192, 32000, 30 << 30),  # a billion parameters
}
EXACT, NOISE = 1e-4, 0.1  # the largest relative difference in float32, and in the precision of the device

Rows = list[tuple[str, str]]  # what was measured, and its value


class OnDevice:
    """Measures on one machine, with models of one size."""

    def __init__(self, size: str, here: Machine) -> None:
        self.size, self.here = size, here
        self.layers, self.width, self.heads, self.vocabulary = SIZES[size]
        self.exact = Machine(here.device, "float32")

    def bert(self, head: Any = AutoModelForSequenceClassification) -> PreTrainedModel:
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=self.vocabulary,
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=4 * self.width,
            initializer_range=self.width**-0.5,  # the usual 0.02 would hide errors of attention
        )
        model: PreTrainedModel = head.from_config(config, attn_implementation="sdpa")
        return model

    def experiment(
        self, where: Machine, kind: str = "short", examples: int = TRAIN, *, dropout: bool = False
    ) -> Experiment:
        model = self.bert()
        if not dropout:
            switch_dropout_off(model)
        return context_of(model, lengths_like(kind, examples + VALIDATION), where, validation=VALIDATION)

    def tags_context(self, where: Machine) -> Experiment:
        model = self.bert(AutoModelForTokenClassification)
        switch_dropout_off(model)
        return with_tags(context_of(model, lengths_like("short", TRAIN + VALIDATION), where, validation=VALIDATION))

    def equality(self) -> Rows:
        """Runs from cached hidden states and of the whole model, without dropout."""
        rows: Rows = []
        for tune in (min(2, self.layers), "all"):
            on_cpu = self._run(tune, self.experiment(Machine(CPU, "float32")))
            exact = self._run(tune, self.experiment(self.exact))
            rows.append((f"k = {tune}, float32 against the CPU", _verdict(difference(exact, on_cpu), EXACT)))
            if self.here.precision != "float32":
                gap = difference(self._run(tune, self.experiment(self.here)), on_cpu)
                rows.append((f"k = {tune}, {self.here.precision} against the CPU", _verdict(gap, NOISE)))
            if tune != "all":
                gap = difference(self._run(tune, self.experiment(self.exact), copies=True), exact)
                rows.append((f"k = {tune}, hidden states in GPU memory", _verdict(gap, EXACT)))
        return rows

    def _spec(self, tune: int | str, experiment: Experiment, **more: Any) -> Run:
        values = {"metric": experiment.problem.metric, "precision": experiment.machine.precision}
        return spec_of(tune, len(experiment.splits["train"]), **values | more)

    def _run(self, tune: int | str, experiment: Experiment, *, copies: bool = False) -> Result:
        """A run. With ``copies``, its hidden states are copied to the device as a whole, else batch by batch."""
        experiment.worker.copies.keep_within(1 << 40 if copies else 0)
        return run(self._spec(tune, experiment, num_train_epochs=1), self._with_states(tune, experiment))

    def _with_states(self, tune: int | str, experiment: Experiment) -> Experiment:
        return experiment if tune == "all" else with_states(experiment, (self.layers - int(tune),))

    def stacked(self) -> Rows:
        """Runs in a stack against each alone, also with two batches for each step, whose gradients add up."""
        experiment, rows = self.experiment(self.exact), []
        for batches, words in {1: "", 2: ", two batches a step"}.items():
            same = {"num_train_epochs": 1, "gradient_accumulation_steps": batches}
            specs = [self._spec("all", experiment, seed=n, learning_rate=1e-5 * (n + 1), **same) for n in range(3)]
            alone = [run(spec, experiment) for spec in specs]
            together = run_stacked(specs, experiment.with_worker(batched=True))
            gap = max(difference(one, other) for one, other in zip(together, alone, strict=True))
            rows.append((f"3 runs in a stack against each alone{words}", _verdict(gap, EXACT)))
        return rows

    def throughput(self) -> Rows:
        """Stacks of more and more runs, up to the first that does not fit into memory."""
        tune = min(2, self.layers)
        experiment = self._with_states(tune, self.experiment(self.here, examples=8 * BATCH, dropout=True))
        rows: Rows = []
        first = 0.0
        for count in STACKS[self.size]:
            what = f"stack of {count}, k = {tune}, longest examples"
            torch.cuda.empty_cache()  # blocks of a smaller stack would count against this one
            try:
                specs = [self._spec(tune, experiment, seed=seed) for seed in range(count)]
                seconds, used = warm_step(specs, experiment, steps=8)
            except Exception as error:
                if not rows or not memory_ran_out(error):
                    raise
                return [*rows, (what, "memory ran out")]
            rate = count * BATCH / seconds
            first = first or rate
            text = f"{rate:,.0f} examples/s, {rate / first:.1f} times one run, peak {used / 1e9:.1f} GB"
            rows.append((what, text))
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
            experiment = self.experiment(self.here, kind, examples)
            selection = with_states(experiment, (self.layers,)).states
            assert selection is not None
            whole = experiment.forward_pass(selection.selection)
            batches = whole.batches(experiment.tokens.lengths, np.arange(examples))
            with peak_memory(self.here) as peak:
                seconds = self._seconds(lambda: list(whole.hidden_states(experiment.tokens, batches)), times=2)  # noqa: B023
            done = experiment.tokens.lengths[:examples]
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

    def tags(self) -> Rows:
        """Token classification: a run against the CPU, and the time of a step."""
        tune = min(2, self.layers)
        on_cpu, exact = (self._run(tune, self.tags_context(where)) for where in (Machine(CPU, "float32"), self.exact))
        experiment = self._with_states(tune, self.tags_context(self.here))
        seconds, used = warm_step([self._spec(tune, experiment)], experiment)
        return [
            (f"k = {tune}, float32 against the CPU", _verdict(difference(exact, on_cpu), EXACT)),
            (f"k = {tune}", f"{seconds * 1e3:.1f} ms a step of {BATCH} sentences, peak {used / 1e9:.1f} GB"),
        ]

    def llama(self) -> Rows:
        width, layers, heads, key_heads, inner, vocabulary, memory = LLAMA[self.size]
        if memory_limit(self.here.device) < memory:
            return [("a model with 1 billion parameters", "left out: there is not enough memory")]
        config = LlamaConfig(
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            intermediate_size=inner,
            vocab_size=vocabulary,
            num_labels=2,
            pad_token_id=0,
        )
        with self.here.device:
            model = AutoModelForSequenceClassification.from_config(config, attn_implementation="sdpa")
        experiment = context_of(model, lengths_like("short", TRAIN + VALIDATION), self.here, validation=VALIDATION)
        rows = []
        for tune in (2, "all"):
            seconds, used = warm_step([self._spec(tune, experiment)], experiment)
            rows.append((f"k = {tune}", f"{seconds * 1e3:.0f} ms a step of {BATCH}, peak {used / 1e9:.1f} GB"))
        return rows

    def grid(self) -> Rows:
        options = argparse.Namespace(
            sides="frostline,trainer-best", repeats=1, trainer_cells=1, random=self.size, stacks=None, resume=None
        )
        settings = {**versus_trainer.RANDOM, "device": self.here.device.type, "precision": self.here.precision}
        if self.size == "tiny":
            settings |= {"tune": "0,all", "seeds": "1", "learning_rate": "1e-4", "train_size": "32"}
        measured = versus_trainer.measure(options, settings)
        summary = speed_report.summarise(measured["lines"], measured["cells"])
        sentences = speed_report.sentences(summary, measured["machine"], measured["task"])
        return [("frostline and Trainer", sentence) for sentence in sentences]


def warm_step(specs: Sequence[Run], experiment: Experiment, *, steps: int = 4) -> tuple[float, int]:
    """Seconds and memory of a training step. A GPU loads each kernel when it is first used, so the first steps do not count."""
    profile_step(specs, experiment, steps=steps)
    return profile_step(specs, experiment, steps=steps)


def difference(one: Result, other: Result) -> float:
    """The largest difference of two runs' validation logits, relative to the largest logit. Absent words have no logits."""
    mine, theirs = one.logits["validation_last"], other.logits["validation_last"]
    known = ~np.isnan(theirs)
    return float(np.abs(mine - theirs)[known].max() / np.abs(theirs)[known].max())


def _verdict(gap: float, limit: float) -> str:
    return f"{gap:.1e} ({'good' if gap <= limit else f'TOO LARGE, limit {limit:g}'})"
