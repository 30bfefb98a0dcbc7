"""The answer and its words."""
