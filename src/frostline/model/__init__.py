"""Pretrained models: layers, ways to tune, loading, tokenization, packed batches.

- ``model_files``, ``weights``, ``loading``: from a hub name or a folder to a ``Pretrained`` (``pretrained``).
- ``streaming``: layers that are read when they run, for models larger than memory.
- ``anatomy``: the layers of a model and the place of each parameter. ``terms`` names them without torch.
- ``ways``: ways to tune as data, and the parameters that each of them trains. Start here to add a new choice.
- ``heads``: other heads than those of the model types.
- ``tokens``: encoded examples. ``packed_layout``, ``packing``: batches without padding. ``stacking``: several runs in one model.
- ``classifier``: a trained classifier in a folder, which labels new texts.
- ``device``: the machine and its memory.

May import from data, statistics and fast.
"""
