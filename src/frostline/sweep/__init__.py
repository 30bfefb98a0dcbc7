"""A sweep: its specification, its plan, its results on disk, and its execution.

- ``specification``, ``grids``, ``toml``: the settings; ``inputs``, ``prepare``: data, model and tokens for them.
- ``plan``, ``make_plan``, ``cache_space``: the runs, and the hidden states that are cached for them.
- ``forecast/``: time and memory before anything is trained; ``execution/``: train the runs.
- ``results/``: the folder of a sweep; ``register``, ``join``: add runs to it.

May import from data, statistics, fast, model, frozen and training. Start with ``prepare`` and ``execution/execute``.
"""
