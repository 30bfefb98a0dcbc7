"""Flags that make a sweep of the command line short."""

FAST = "--num-train-epochs 1 --per-device-train-batch-size 8 --learning-rate 1e-3 --precision float32".split()  # noqa: SIM905
