"""Ways that do not use the training loop: an estimator gets the examples of a run, fits a model and predicts.

- estimator.py: what an estimator does, and what it fits. Start reading here.
- by_name.py: the estimators by the name that a way gives.
- fitting.py: a run of an estimator, from its specification to its result.
- probe.py, words.py: a linear probe on frozen features, and a TF-IDF model, which train no parameter of the model.
- contrastive.py: SetFit, which fine-tunes a sentence encoder with its own package.
- saved_encoder.py: predicts with a saved SetFit model.
"""
