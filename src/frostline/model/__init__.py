"""Pretrained models: layers, trainable parameters, loading, tokenization, packed batches.

- ``loading``, ``model_files``: from a hub name or a folder to a ``Pretrained`` (``pretrained``).
- ``anatomy``: the layers of a model and the place of each parameter. ``places``, ``trace`` and ``module_paths`` support it.
- ``heads``: other heads than those of the model types, and ``reading`` their kinds; ``with_head`` puts them on a model.
- ``pooled_folder``, ``recurrent_folder``: the folders of models with such heads.
- ``streaming``: layers that are read when they run, for models larger than memory. ``skeleton`` and ``shards`` support it.
- ``checkpoint``: the files of a model, which are loaded or streamed.
- ``saving``: write a model.
- ``classifier``: a trained classifier that labels new texts.
- ``trainable``: the parameters that a run trains. Start here to add a new choice.
- ``tokens``: encoded examples. ``packed_layout``, ``length_groups``, ``packing``: batches without padding.
- ``stacking``: several runs in one model. ``modes``: train and eval mode.
- ``device``, ``memory``: the machine and its memory. ``side_stream``: copies to a GPU while it computes.

May import from data, statistics and fast.
"""
