"""Flags that make a sweep on the command line fast."""

FAST = "--num-train-epochs 1 --per-device-train-batch-size 8 --learning-rate 1e-3 --precision float32".split()  # noqa: SIM905
