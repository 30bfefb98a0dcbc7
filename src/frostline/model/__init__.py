"""Pretrained models: their layers, what is trainable, loading, tokenizing."""
