"""A table as LaTeX, for a paper."""

import re
from collections.abc import Iterable, Sequence

from frostline.report.formatting import UNBROKEN

LATEX = {
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
    **{"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}"},
    **{"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}", '"': "\\textquotedbl{}"},
    **{"[": "{[}", "]": "{]}", "*": "{*}"},  # after a line break they would be read as its options
    **{UNBROKEN: "~", "–": "--", "−": "$-$", "×": "$\\times$", "’": "'", "“": "``", "”": "''", "…": "\\dots{}"},
    **{"ρ": "$\\rho$", "²": "$^2$"},
}
SPECIAL = re.compile("|".join(map(re.escape, LATEX)))
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def latex_table(
    *,
    label: str,
    caption: str,
    alignment: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> str:
    """A ``table`` environment with booktabs rules; needs the packages ``booktabs`` and ``[T1]{fontenc}``.

    Args:
        label: The label after ``tab:``.
        caption: The caption, unescaped like all text here.
        alignment: A letter for each column: l or r.
        head: The titles of the columns.
        rows: The printed values of each row.
    """
    lines = [
        "% needs \\usepackage{booktabs} and \\usepackage[T1]{fontenc}",
        "\\begin{table}",
        "\\centering",
        f"\\caption{{{escaped(caption)}}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{{alignment}}}",
        "\\toprule",
        _line(head),
        "\\midrule",
        *map(_line, rows),
        *("\\bottomrule", "\\end{tabular}", "\\end{table}"),
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """The text with every special character escaped, on one line."""
    plain = CONTROL.sub("", " ".join(re.split(r"[ \t\r\n]+", text)))
    return SPECIAL.sub(lambda found: LATEX[found[0]], plain)


def _line(texts: Iterable[str]) -> str:
    return " & ".join(map(escaped, texts)) + " \\\\"
