"""The command line: few verbs over the objects that Python users have. What is heavy is imported by the verb."""

import frostline.cli.cache
import frostline.cli.results
import frostline.cli.sweeps  # noqa: F401  each adds its verbs
from frostline.cli.program import app, main

__all__ = ["app", "main"]
