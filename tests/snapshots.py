"""Texts that a test compares with a file beside it. Run the test with RENEW=1 to write the file anew, and read what changed."""

import os
import textwrap
from collections.abc import Mapping
from pathlib import Path


def assert_like(path: Path, texts: Mapping[str, str]) -> None:
    """Assert that the file has these texts, each below its name. A text of a single line is wrapped."""
    shown = {name: text if "\n" in text else textwrap.fill(text, 120) for name, text in texts.items()}
    found = "\n".join(f"{name}\n{textwrap.indent(text.strip(chr(10)), '    ')}\n" for name, text in shown.items())
    if os.environ.get("RENEW"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"RENEW=1 writes {path.name} anew"
