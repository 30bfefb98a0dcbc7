"""Seeds of the random generators of a run."""

import hashlib


def generator_seed(seed: int, purpose: str) -> int:
    """The seed for one purpose (head, order, dropout, subset), so that no two generators draw the same numbers."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=6).digest(), "big")
