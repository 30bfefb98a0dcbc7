"""Formulas on arrays of scores: confidence intervals, p-values and sample sizes. Only numpy and scipy.

Two sources make a measured score uncertain, and both are counted:

- Seeds (head, order of examples, dropout, subset). Their share is the covariance of the scores over seeds, divided by the
  number of seeds.
- The examples that happen to be in the validation set. Their share is a jackknife over groups of rows (``jackknife.py``).

Compared runs share seeds and rows, so differences are paired (``pair.py``). The variances add, and Student's t with
Satterthwaite's degrees of freedom gives the interval. Every interval is two-sided with 95 % confidence, and every decision
rests on its ends. With interim analyses each analysis gets its part of the 5 % (``quantile.py``).
"""
