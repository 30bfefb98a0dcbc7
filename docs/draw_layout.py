"""Draw docs/_static/layout.svg from the code: every folder with what it is for, its files and what it imports.

python docs/draw_layout.py
"""

import ast
from html import escape
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parent / "src" / "frostline"
WIDTH, TOP, ROW, LEFT, BOX = 960, 84, 66, 150, 560
INK, FAINT, FILL, LINE = "#1c2733", "#5a6b7b", "#eaf2f8", "#7fa6c4"


def folders() -> list[Path]:
    """The folders of the package, each after those that it imports from (ties by name)."""
    left = {path: imports_of(path) for path in sorted(ROOT.iterdir()) if (path / "__init__.py").exists()}
    ordered: list[Path] = []
    while left:
        done = {path.name for path in ordered}
        ready = [path for path, needs in left.items() if needs <= done]
        assert ready, f"the imports of {', '.join(sorted(path.name for path in left))} form a circle"
        ordered.append(min(ready, key=lambda path: (len(left[path]), path.name)))
        del left[ordered[-1]]
    return ordered


def imports_of(folder: Path) -> set[str]:
    """Names of the other folders that a folder's files import from, within functions too, but not for type checking only."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tests = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
        for_types = {id(n) for one in tests if ast.unparse(one.test) == "TYPE_CHECKING" for n in ast.walk(one)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.ImportFrom)
                and id(node) not in for_types
                and (node.module or "").startswith("frostline.")
            ):
                found.add((node.module or "").split(".")[1])
    return found - {folder.name}


def purpose(folder: Path) -> str:
    """The first sentence of a folder's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).partition(". ")[0].rstrip(".").replace("`", "")


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rsplit(' ', 1)[0]} …"


def arrow(lower: int, upper: int, lane: int) -> str:
    """A curve on the left, from the folder that imports to the folder that it imports from."""
    begin, end, bend = TOP + ROW * upper + 24, TOP + ROW * lower + 24, LEFT - 16 - 9 * lane
    path = f"M {LEFT} {begin} C {bend} {begin}, {bend} {end}, {LEFT} {end}"
    return f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.1" opacity=".65" marker-end="url(#tip)"/>'


def row(number: int, folder: Path) -> list[str]:
    y = TOP + ROW * number
    files = sorted(
        p.stem + "/" * p.is_dir()
        for p in folder.iterdir()
        if p.name[0] not in "_." and (p.is_dir() or p.suffix == ".py")
    )
    return [
        f'<rect x="{LEFT}" y="{y}" width="{BOX + 220}" height="{ROW - 14}" rx="6" fill="{FILL}" stroke="{LINE}"/>',
        f'<text x="{LEFT + 14}" y="{y + 22}" font-size="16" font-weight="600">{escape(folder.name)}/</text>',
        f'<text x="{LEFT + 118}" y="{y + 22}" font-size="12">{escape(shortened(purpose(folder), 100))}</text>',
        f'<text x="{LEFT + 118}" y="{y + 41}" font-size="11" fill="{FAINT}">{escape(shortened(", ".join(files), 112))}</text>',
    ]


def draw() -> str:
    ordered = folders()
    place = {folder.name: number for number, folder in enumerate(ordered)}
    height = TOP + ROW * len(ordered) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"',
        f' font-family="sans-serif" fill="{INK}">',
        "<title>The folders of frostline, in the order of their imports</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="34" font-size="20" font-weight="600">src/frostline</text>',
        f'<text x="{LEFT}" y="58" font-size="13" fill="{FAINT}">Each folder imports only from folders above it. '
        "An arrow points at a folder that is imported.</text>",
    ]
    for folder in ordered:
        for name in sorted(imports_of(folder)):
            upper, lower = place[folder.name], place[name]
            parts.append(arrow(lower, upper, upper - lower))
    for number, folder in enumerate(ordered):
        parts += row(number, folder)
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (DOCS / "_static").mkdir(exist_ok=True)
    (DOCS / "_static" / "layout.svg").write_text(draw(), encoding="utf-8")
