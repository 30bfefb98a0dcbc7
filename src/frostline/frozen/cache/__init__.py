"""Cached hidden states: computed once, verified, read back.

On disk, below the cache folder:

    <recipe>/recipe.json              everything but the examples that determines the bytes
    <recipe>/<shard>/shard.json       sizes and checksums of the files beside it
                     keys.npy         [N] 16-byte digests of the examples' tokens
                     offsets.npy      [N + 1] where each example's tokens begin
                     tokens-<cut>.npy [T, D] hidden states of all real tokens after <cut> layers
                     head.npy         [N, D] the one hidden state that the head reads, after the last layer
                     pooled-<n>.npy   [N, 3 D] of each example after n layers: first token, mean, last token

The hidden states of an example depend on the example alone (:mod:`frostline.frozen.batches`). Examples that are added later,
or computed in other batches, get bitwise identical states. A shard is written to a temporary folder and published by one
rename; it never changes afterwards.

- ``recipe``: the key of a folder.
- ``shard``: one published folder, and its integrity.
- ``writing``: compute and write a shard.
- ``hidden_states``: read the states of a batch.
- ``loading``: load what is cached, compute the rest.
- ``entries``: list, remove and verify what is cached.
"""
