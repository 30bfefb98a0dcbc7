"""Pages in a real browser: they are self-contained, and readable on screens of all sizes and on paper."""

import base64
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pages import raw

PAPER = 718  # CSS pixels of A4 between margins of 10 mm

CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const pixel = (colours) => {
    for (const colour of colours) { paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1); }
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const poor = [];
  let seen = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    const text = walk.currentNode.data.trim();
    if (!text || ["SCRIPT", "STYLE"].includes(element.tagName.toUpperCase()) || !element.checkVisibility()) continue;
    seen += 1;
    const grounds = [];
    for (let one = element; one; one = one.parentElement) grounds.unshift(getComputedStyle(one).backgroundColor);
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [light, dark] = [pixel(["#808080", ...grounds]), pixel(["#808080", ...grounds, ink])]
      .map(luminance).sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) poor.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)} (${ink} on ${grounds.at(-1)})`);
  }
  return { seen, poor };
}"""


BROKEN = """() => [...document.querySelectorAll("td.text")].flatMap((cell) => {
  const walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(walk.currentNode, word.index);
    range.setEnd(walk.currentNode, word.index + word[0].length);
    if (word[0].length < 12 && range.getClientRects().length > 1) found.push(word[0]);
  }
  return found;
})"""


@pytest.fixture(
    params=[
        *("with_failures", "classes", "study"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("real", "regression", "many_tasks")),
    ]
)
def folder(request: pytest.FixtureRequest, page_folder: Callable[[str], Path]) -> Path:
    return page_folder(request.param)


def table_of(page: Any, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True).get_by_role("table")


def first_table(folder: Path) -> tuple[str, str]:
    """The title and the file of the first table."""
    of_analysis = (folder / "analysis.json").exists()
    return ("What to tune", "recommendations.csv") if of_analysis else ("Choices", "choices.csv")


def test_contrast(visit: Any, folder: Path) -> None:
    page = visit(folder)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(CONTRAST)
        assert found["seen"] > 200 and found["poor"] == []


def test_light_and_dark_differ_and_paper_is_white(visit: Any, page_folder: Callable[[str], Path]) -> None:
    pages = [visit(page_folder("with_failures"), color_scheme=scheme) for scheme in ("light", "dark")]
    grounds = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in pages]
    inks = [page.evaluate("getComputedStyle(document.querySelector('svg text')).fill") for page in pages]
    assert len(set(grounds)) == 2 and len(set(inks)) == 2
    pages[1].emulate_media(media="print", color_scheme="dark")
    assert pages[1].evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_nothing_overflows(visit: Any, folder: Path) -> None:
    page = visit(folder)
    for width in (1280, 800, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth") and page.evaluate(BROKEN) == []
    page.evaluate("document.querySelectorAll('.sorts thead button').forEach((button) => button.click())")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_text_in_the_main_figure_is_readable_on_a_phone(visit: Any, page_folder: Callable[[str], Path]) -> None:
    """The figure is then wider than the screen, and scrolls."""
    page = visit(page_folder("with_failures"), width=390)
    heights = "[...document.querySelectorAll('figure.curve svg text')].map((t) => t.getBoundingClientRect().height)"
    assert min(page.evaluate(heights)) >= 10
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_downloads_are_the_files_on_disk(visit: Any, folder: Path) -> None:
    page = visit(folder, accept_downloads=True)
    links = page.locator("a[download]")
    found = {}
    for link in links.all():
        content = base64.b64decode(link.get_attribute("href").partition("base64,")[2])
        found[link.get_attribute("download")] = content
    assert len(found) == links.count() and found
    for name, content in found.items():
        assert content == (folder / "tables" / name).read_bytes()
    title, name = first_table(folder)
    link = page.get_by_role("link", name=f"CSV of the table “{title}”", exact=True)
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == name
    assert Path(download.value.path()).read_bytes() == found[name]


def test_print_shows_everything_and_no_controls(visit: Any, folder: Path) -> None:
    page = visit(folder, width=PAPER, unfold=False)
    page.emulate_media(media="print")
    for details in page.locator("details").all():
        assert all(child.bounding_box()["height"] > 10 for child in details.locator("> :not(summary)").all())
    assert page.locator(".downloads:visible, nav:visible, .copy button:visible").count() == 0
    assert page.locator("h2:visible").count() == page.locator("h2").count()
    too_wide = "(most) => [...document.querySelectorAll('table')].filter((t) => t.getBoundingClientRect().right > most)"
    assert page.evaluate(f"(most) => ({too_wide})(most).map((table) => table.caption.innerText)", PAPER) == []
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_everything_can_be_read_without_script(visit: Any, folder: Path) -> None:
    page = visit(folder, unfold=False, java_script_enabled=False)
    assert page.locator("button").count() == 0
    if not (folder / "analysis.json").exists():
        page.get_by_text("The choices compared").click()
    table = table_of(page, first_table(folder)[0])
    assert table.is_visible() and table.locator("thead").inner_text().strip()
    assert page.locator("thead th").all_inner_texts() and page.get_by_role("heading", level=1).is_visible()


def test_structure_for_screen_readers(visit: Any, folder: Path) -> None:
    page = visit(folder)
    for role in ("banner", "main"):
        assert page.get_by_role(role).count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((head) => Number(head.tagName[1]))")
    assert levels.count(1) == 1 == levels[0]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.locator("table").count() == page.locator("table > caption").count() > 5
    assert page.locator("th:not([scope])").count() == 0
    for names in ("[role=region]", "a[download]"):
        said = page.locator(names).evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")
        assert len(said) == len(set(said)) and all(said)
    named = "figure svg[role=img][aria-label]:not([aria-label=''])"
    assert page.locator("figure svg").count() == page.locator(named).count()
    regions = page.locator(".scroll")
    assert regions.count() == page.locator(".scroll[tabindex='0'][role=region] > table").count()


def test_code_is_copied(visit: Any, page_folder: Callable[[str], Path]) -> None:
    page = visit(page_folder("with_failures"), permissions=["clipboard-read", "clipboard-write"])
    code = page.locator("pre.copy code").first
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Copied").wait_for()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == code.inner_text() and copied.startswith("from transformers import pipeline\n")


def test_code_that_cannot_be_copied_is_selected(visit: Any, page_folder: Callable[[str], Path]) -> None:
    page = visit(page_folder("with_failures"))
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('denied')); }")
    page.get_by_role("button", name="Copy").first.click()
    page.get_by_role("button", name="Selected").wait_for()
    selected = page.evaluate("getSelection().toString()")
    assert selected.strip() == page.locator("pre.copy code").first.inner_text().strip()


def test_the_count_of_failed_runs_opens_their_section(visit: Any, page_folder: Callable[[str], Path]) -> None:
    page = visit(page_folder("with_failures"), unfold=False)
    assert not page.get_by_text("finished runs failed:").is_visible()
    page.get_by_role("link", name="finished runs failed").click()
    assert page.get_by_text("finished runs failed:").is_visible()


def first_cells(table: Any) -> list[str]:
    return [text.split("\n")[0] for text in table.locator("tbody th").all_inner_texts()]


def test_sorting_by_click(visit: Any, page_folder: Callable[[str], Path]) -> None:
    folder = page_folder("with_failures")
    table = table_of(visit(folder), "Share of full fine-tuning by tuned layers")
    before, values = first_cells(table), [row["p"] for row in raw(folder, "shares")]
    known = sorted((float(value), n) for n, value in enumerate(values) if value)
    unknown = [before[n] for n, value in enumerate(values) if not value]
    assert "full" in unknown and len(known) > 2
    button, head = table.get_by_role("button", name="p-value", exact=True), table.locator("th[aria-sort]")
    assert head.count() == 0
    button.click()
    assert first_cells(table) == [before[n] for _, n in known] + unknown
    assert head.count() == 1 and head.get_attribute("aria-sort") == "ascending"
    button.click()
    assert first_cells(table) == [before[n] for _, n in reversed(known)] + unknown
    assert head.count() == 1 and head.get_attribute("aria-sort") == "descending"
    table.get_by_role("button", name="tuned").click()
    assert first_cells(table) == before


def test_sorting_by_keyboard(visit: Any, page_folder: Callable[[str], Path]) -> None:
    page = visit(page_folder("with_failures"))
    table = table_of(page, "Accuracy by tuned layers")
    before, head = first_cells(table), table.locator("th[aria-sort]")
    region = page.get_by_role("region", name="Accuracy by tuned layers", exact=True)
    region.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending" and first_cells(table) == before
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending" and first_cells(table) == before[::-1]
