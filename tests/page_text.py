"""Parses a report page: its visible text, tags and attributes."""

from html.parser import HTMLParser
from pathlib import Path

from frostline.report.pages.sweep import write_page
from frostline.statistics.answer import Answer

VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})


class Page(HTMLParser):
    """A parsed page: the elements that are not closed, the tags, the attributes, and the visible text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data

    @property
    def words(self) -> str:
        """The visible text with single spaces."""
        return " ".join(self.text.split())


def page_of(out: Path) -> Page:
    """Write and parse the page of a sweep's folder. Asserts that it is valid and needs no network access."""
    page = Page(write_page(out))
    assert not page.open, "every element is closed"
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids)), "figures share no ids"
    for name, value in page.attributes:
        assert name not in ("src", "srcset", "action") and not name.startswith("on")
        if name in ("href", "xlink:href"):
            ours = value == "data:," or value.startswith("data:application/octet-stream;")
            assert ours or (value.startswith("#") and value[1:] in ids)
    style = (out / "report.html").read_text(encoding="utf-8")
    assert "url(http" not in style and "@import" not in style
    return page


def answer_of(out: Path) -> Answer:
    """The content of answer.json in a sweep's folder."""
    return Answer.read(out / "answer.json")
