"""The cache of hidden states on disk.

Inside the cache folder, each recipe has a folder with ``recipe.json``: everything that determines hidden states, except the
examples. It has a folder for each shard, with these files:

- ``shard.json``: sizes and checksums of the other files, and its own checksum.
- ``keys.npy``, ``[N]``: 16-byte digests of the examples' tokens.
- ``offsets.npy``, ``[N + 1]``: where each example's tokens begin.
- ``tokens-<cut>.npy``, ``[T, D]``: hidden states of all real tokens after ``<cut>`` layers.
- ``head.npy``, ``[N, D]``: hidden states of the head's tokens after the last layer.
- ``pooled-<n>.npy``, ``[N, 3 D]``: first token, mean and last token of each example after ``<n>`` layers.

The hidden states of an example depend on that example alone (:mod:`frostline.frozen.batches`). The cache can therefore grow:
examples that are computed later, in other batches, get bitwise identical hidden states. A shard is written to a temporary
folder, which is then renamed. It never changes afterwards.

Its modules:

- ``loading``: load cached hidden states and compute missing ones; list, remove and verify them. Start reading here.
- ``hidden_states``: compute, write and check a shard, and read the hidden states of a batch from several shards.
- ``readers``: read the hidden states of one kind on the device that computes, from the host or from copies in its memory.
"""
