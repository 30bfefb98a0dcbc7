"""One run: specification, loop, result."""
