"""The search for the answer."""
