"""The one kind of error that is the user's to put right."""


class FrostlineError(ValueError):
    """One sentence that says what is wrong, where (file, row, key) and what to do.

    The command line prints it and exits with code 2; in Python it is an ordinary ``ValueError``.
    """
