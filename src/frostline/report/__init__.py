"""What a sweep leaves for people: figures, a page, and the model with its card."""
