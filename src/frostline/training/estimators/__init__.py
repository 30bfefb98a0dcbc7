"""Ways that do not use the training loop: an estimator gets the examples of a run, fits a model and predicts.

- estimators.py: what an estimator does, and two that train no parameter of the model: a linear probe, and a TF-IDF model.
  Start reading here.
- by_name.py: the estimators by the name that a way gives.
- contrastive.py: SetFit, which fine-tunes a sentence encoder with its own package.
- saved_encoder.py: predicts with a saved SetFit model.
"""
