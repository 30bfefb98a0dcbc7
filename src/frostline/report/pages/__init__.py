"""HTML pages of a sweep, an analysis of many results, and linear probes; ``templates`` renders them."""
