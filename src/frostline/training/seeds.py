"""Seeds of the random generators of a run."""

import hashlib


def generator_seed(seed: int, purpose: str) -> int:
    """The seed of the generator for one purpose (head, order, dropout, subset). Each purpose has a different seed."""
    return int.from_bytes(hashlib.blake2b(f"{purpose}/{seed}".encode(), digest_size=6).digest(), "big")
