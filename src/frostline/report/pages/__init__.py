"""HTML pages of a sweep and of an analysis of many results; ``curves`` is what they share, and ``templates`` renders them."""
