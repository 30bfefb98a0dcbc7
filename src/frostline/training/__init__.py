"""Train one run: from a recipe to a result. May import from data, statistics, fast, model and frozen.

- settings.py: the settings of training that all runs of a sweep share.
- run.py: a run and its digest, steps, phases and checkpoints. Start reading here.
- experiment.py: the model and data that all runs share, and what one worker has loaded.
- problem.py: targets, loss and scores, also for several labels and for tags.
- start.py: where a run starts, and what restrains it; forward.py: its rows, and the function from rows to logits.
- learner.py: the state of one run in the loop; updates.py: gradients, optimizer and divergence.
- train.py: the training loop, and one run: start from pretrained values, train, score, audit.
- audit.py: checks what was frozen and what was trained.
- result.py: the result, as it is written to disk.
- linear_models.py, probes.py: linear models and probes on frozen features.
- estimators.py: ways without the training loop; saved_estimators.py: what is written of them, and predictions for new texts.
"""
