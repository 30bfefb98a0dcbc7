"""What a classifier head reads of the last hidden states. Imports no torch, because settings are read without it."""

from typing import Final

OWN: Final = "type"  # what the head of the model type reads
MEAN: Final = "mean"  # the mean of all tokens
LAST: Final = "last"  # the last token
