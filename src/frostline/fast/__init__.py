"""Speed-ups for CPUs. ``switch`` lists them and turns them off. May import from data and statistics only."""
