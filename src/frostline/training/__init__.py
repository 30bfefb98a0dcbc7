"""Train one run: from a specification to a result. May import from data, statistics, fast, model and frozen.

- specification.py: settings of a run, and its digest; fields.py holds the types of its fields
- run.py: the whole story: start from pretrained values, train, score, audit
- context.py: what all runs of one worker share
- rows.py: training and validation rows, and their order; seeds.py seeds every random generator
- session.py: the model while runs are trained on it; forward.py is the function from rows to logits
- loop.py: the training loop; learner.py is one run in it, problem.py its loss and scores
- optimizer.py: AdamW, parameter groups and schedules; steps.py counts steps
- audit.py: checks what was frozen and what was trained
- result.py: the result, as it is written to disk
- step_profile.py: time and memory of a step
- probes/: linear probes on frozen features
"""
