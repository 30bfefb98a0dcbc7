"""A sweep: its settings, its plan, its results on disk, and its execution.

- ``settings``, ``toml``: the settings; ``prepare``: data, model and tokens for them, and what they do not allow.
- ``grid``, ``plan``: the runs, and the hidden states that are cached for them.
- ``operations``: the price and the memory of runs; ``results/``: the folder of a sweep; ``register``, ``join``,
  ``merge``: add runs to it.
- ``streaming``: whether and how much of the model is streamed.
- ``slurm``: start workers on a cluster.
- ``execution/``: train the runs, and forecast their time and memory; ``progress``: the progress display; ``time_left``: how
  long the rest will take.

May import from data, statistics, fast, model, frozen and training. ``execution/`` imports from the files here, which import
from ``results/``. Start with ``prepare`` and ``execution/execute``.
"""
