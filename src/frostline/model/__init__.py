"""Pretrained models: their layers, what is trainable, loading, tokenizing, packed batches.

- ``loading``, ``model_files``: from a hub name or a folder to a ``Pretrained`` (``pretrained``).
- ``anatomy``: the layers, and the place of each parameter; ``trace``, ``module_paths`` help to find them.
- ``tune``, ``trainable``: what a run trains. A new way to choose it begins here.
- ``tokens``: examples as token numbers; ``packed_layout``, ``packing``: batches without padding.
- ``stacking``: several runs in one model; ``modes``: train and eval mode.
- ``device``, ``memory``: the machine and its memory.

May import from data, statistics and fast.
"""
