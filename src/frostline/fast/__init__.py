"""Speed-ups for CPUs."""
