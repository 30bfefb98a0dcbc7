"""Train one run: from a specification to a result. May import from data, statistics, fast, model and frozen.

- run.py: one run: start from pretrained values, train, score, audit. Start reading here.
- specification.py: the settings of a run, and its digest; fields.py has the types of the settings.
- context.py: the model and data that all runs of one worker share.
- rows.py: the training and validation rows of a run, and their order; seeds.py has the seeds of all random generators.
- session.py: prepares the model for training runs; forward.py is the function from rows to logits, with gradient checkpointing.
- loop.py: the training loop; gradients.py and updates.py have its steps, with the scaled losses of float16.
- checkpoint.py: what a checkpoint keeps.
- learner.py: the state of one run in the loop; problem.py has its loss and scores, also for several labels and for tags.
- optimizer.py: AdamW, parameter groups and schedules; steps.py has the number of steps.
- audit.py: checks which parameters were frozen and which were trained.
- result.py: the result, as it is written to disk.
- step_profile.py: time and memory of a training step.
- ways/: what is trained, from what, how fast and in which order.
- probes/: linear probes on frozen features; estimators/: ways that do not use the training loop.
"""
