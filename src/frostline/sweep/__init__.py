"""A sweep: its grid and plan, its folder of results, and carrying it out."""
