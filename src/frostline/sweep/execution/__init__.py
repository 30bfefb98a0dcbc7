"""Execution of a sweep: the exactness check, the hidden states, then the runs.

Start with ``execute``. ``cuts`` has the exactness check. ``stacks`` groups runs that are trained as one model. ``sharing`` deals
them out to several processes, in the order of ``queue``. ``workers`` trains several runs at the same time, and ``gpus`` starts a
process for each GPU. ``best_weights`` stores the parameters of the best run of each k. ``copies`` decides how many hidden states
a GPU holds, ``out_of_memory`` what is tried again in smaller parts. ``checkpoints`` decides when the state of a run is kept, and
``stopping`` lets a run end after a step.
"""
