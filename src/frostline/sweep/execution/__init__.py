"""Execution of a sweep: the exactness check, the hidden states, then the runs.

- ``execute``: start here. It also decides when a checkpoint is kept, how many hidden states a GPU holds, and what is tried again
  in smaller parts if memory runs out.
- ``cuts``: the exactness check. ``stacks``: runs that are trained as one model.
- ``queue``: deal the runs out to several processes. ``workers``: processes on the cores and GPUs of this machine. ``ray_tasks``:
  tasks of Ray.
- ``stopping``: let a run end after a step. ``forecast``: time a few steps, and predict time and memory.
"""
