"""Execution of a sweep: the exactness check, the hidden states, then the runs.

Start with ``execute``, which also decides when the state of a run is kept, how many hidden states a GPU holds, and what is tried
again in smaller parts if memory runs out. ``cuts`` has the exactness check. ``stacks`` groups runs that are trained as one model.
``sharing`` deals them out to several processes, in the order of ``queue``. ``workers`` trains several runs at the same time, and
``gpus`` starts a process for each GPU. ``best_weights`` stores the parameters of the best run of each k, and ``stopping`` lets a
run end after a step.
"""
