"""Several classifiers that share their frozen layers: one lower part and several upper parts.

- ``sharing``: find the layers that are bitwise identical. Start reading here.
- ``branches``: run the shared layers once for all classifiers.
- ``folder``: the files of a bundle.
"""
