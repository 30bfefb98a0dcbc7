"""Formulas on arrays of scores: confidence intervals, p-values and sample sizes. Only numpy and scipy.

Two sources make a measured score uncertain. Intervals include both:

- Seeds (initial head, order of examples, dropout, subset). Their contribution is the covariance of the scores over seeds,
  divided by the number of seeds.
- The sample of validation examples. Its contribution is a jackknife over groups of rows (``jackknife.py``).

Compared runs have the same seeds and rows, so differences are paired (``pair.py``). The variances add. Student's t with
Satterthwaite's degrees of freedom gives the interval. Every interval is two-sided with 95 % confidence, and every
verdict on a target is based on its ends. With interim analyses, each one gets an equal part of the 5 % (``quantile.py``).
"""
