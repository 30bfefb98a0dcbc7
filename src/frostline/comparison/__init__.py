"""What the runs of one curve, or of a whole table, say: cells, shares of full, operating points, failures. No torch."""
