"""Other ways to tune than the last k layers. A way is data: what a run trains, from what, how fast and in which order.

- way.py: the fields of a way, and which of them go together. Start reading here.
- names.py: the ways that the command line knows by name.
- phases.py: a run as several trainings, one after the other.
- start.py: where a run starts: layers with new values, and what is trained; head.py fits a head on the frozen model.
- rates.py: the learning rates of layers, and options of the optimizer.
- suitable.py: which ways suit a model and a task.
- spectrum.py: chooses matrices by their weights; adapter.py writes an adapter of PEFT.
- restraint.py: what the training loop calls before and after each backward pass, with mixout and L2-SP; low_rank.py is another.

The training loop does not know which way a run takes. :mod:`frostline.training.estimators` has the ways that do without it.
"""
