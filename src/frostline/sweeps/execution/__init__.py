"""Execution of a sweep: the exactness check, the hidden states, then the runs.

- ``execute``: start here. What all ways to train share, training on this machine, and the exactness check before.
- ``stacks``: runs that are trained as one model, and what is tried again if memory runs out.
- ``queue``: deal the runs out to several processes. ``workers``: processes on the cores and GPUs of this machine. ``ray_tasks``:
  tasks of Ray.
- ``stopping``: let a run end after a step. ``forecast``: time a few steps, and predict time and memory.
"""
