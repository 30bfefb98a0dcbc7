"""The documentation site: `make docs` builds it, with every warning an error and no network."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

project = "frostline"
author = "the frostline developers"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = "frostline"
html_static_path = ["_static"]
html_css_files = ["frostline.css"]
html_show_copyright = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
nitpicky = False
exclude_patterns = ["_build", "benchmarks/tables"]

# Tables come from benchmarks/results/*.json; the command reference and the picture of the layout come from the code.
for script in ("benchmark_tables.py", "cli_reference.py", "draw_layout.py"):
    subprocess.run([sys.executable, str(HERE / script)], check=True)
