"""The page in a real browser: quiet, self-contained, sortable, readable everywhere."""

import base64
import csv
import io
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from report.test_pages import HOSTILE, make_folder

from frostline.report.answer.analysis import analyze
from frostline.report.pages.analysis import write_analysis
from frostline.report.pages.sweep import write_page
from frostline.statistics.choices import Choices
from frostline.studies import load_protocol
from frostline.studies.comparison import beside, summary_of
from made import RISING, made_group, noisy

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install -e '.[test]')")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
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
UNFOLD = "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium as the system has it."""
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium, which is not here")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def folders(finished_sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with their page: one of a real sweep; many sizes, rates and failures; many classes with hostile names."""
    base = tmp_path_factory.mktemp("pages")
    troubled = make_folder(
        base / "troubled",
        tune=(0, 1, 2, 4, 6, "all", "named"),
        tune_modules=("layer.3", "layer.5"),
        seeds=3,
        sizes=(100, 1000),
        learning_rates=(5e-5, 1e-4),
        diverged=[("all", 1)],
        degenerate=[(6, 2)],
        missing=[(2, 0)],
        errors=[(1, 1)],
        notes=["These texts are generated."],
    )
    labels = [*HOSTILE, *(f"class {n}" for n in range(30))]
    classes = make_folder(base / "classes", labels=labels, tune=(0, 1, "all"), seeds=2, texts=HOSTILE)
    regression = make_folder(base / "regression", labels=(), tune=(0, 2, 3, "all"), seeds=1)
    for folder in (troubled, classes, regression):
        write_page(folder)
    made = {"studied": studied(base / "studied"), "many": many(base / "many")}
    return {"real": finished_sweep, "troubled": troubled, "classes": classes, "regression": regression, **made}


def studied(out: Path) -> Path:
    """The page of a study of two sizes, with failures, train scores and what was published beside."""

    def quality(k: int | str, seed: int, size: int | None) -> float | None:
        if (k, seed) == (2, 0):
            return None
        return 0.5 if (k, seed) == (1, 1) else noisy({**RISING, 6: 0.9}, 0.02)(k, seed, size)

    protocol = load_protocol("lowdata2021")
    group = made_group(quality, sizes=(50, 100), layers=6, ks=(0, 1, 2, 4, 6, "all"), model="a-model", task="SST-2")
    for run in group.runs:
        run["train_last"] = 0.95  # type: ignore[index]
    analysis = analyze([group], Choices())
    rows = beside(protocol, analysis)
    facts = {name: getattr(protocol, name) for name in ("asks", "source", "contradictions", "differs")}
    publication = {**facts, "summary": summary_of(rows)}
    write_analysis(out, analysis, title=protocol.title, publication=publication, rows=rows)
    return out


def many(out: Path) -> Path:
    """The page of two models on four tasks, with hostile names."""
    tasks = ("CoLA", "SST-2", "<b>bold</b>", 'a "task" & more')
    groups = [
        made_group(noisy(RISING, 0.02, seed), model=model, task=task)
        for model in ("one", "a-model-with-a-very-long-name-that-does-not-end")
        for seed, task in enumerate(tasks)
    ]
    write_analysis(out, analyze(groups, Choices(by_mean=True, leave_out=("CoLA",))), title="Many <i>tasks</i>")
    return out


@pytest.fixture(params=["real", "troubled", "classes", "regression", "studied", "many"])
def folder(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Path:
    return folders[request.param]


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens the page of a folder; at the end nothing may have been said on the console or asked of any address."""
    contexts, said, asked = [], [], []

    def open_page(folder: Path, *, width: int = 1280, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page, address = context.new_page(), (folder / "report.html").as_uri()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        context.route("**/*", lambda route: route.continue_() if route.request.url == address else route.abort())
        page.goto(address)
        asked.remove(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == [] and [address for address in asked if not address.startswith("data:")] == []


def table_of(page: Any, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True).get_by_role("table")


def table_that_is_there(folder: Path) -> tuple[str, str]:
    """A table that stands unfolded on the page: its title and its file."""
    of_analysis = (folder / "analysis.json").exists()
    return ("Every task by itself", "answers.csv") if of_analysis else ("Operating points", "operating_points.csv")


def first_cells(table: Any) -> list[str]:
    return [text.split("\n")[0] for text in table.locator("tbody th").all_inner_texts()]


def raw(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text())))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(visit: Any, folder: Path, scheme: str) -> None:
    page = visit(folder, color_scheme=scheme)
    page.evaluate(UNFOLD)
    found = page.evaluate(CONTRAST)
    assert found["seen"] > 200 and found["poor"] == []


def test_light_and_dark_differ_and_paper_is_white(visit: Any, folders: dict[str, Path]) -> None:
    pages = [visit(folders["real"], color_scheme=scheme) for scheme in ("light", "dark")]
    grounds = [page.evaluate("getComputedStyle(document.body).backgroundColor") for page in pages]
    inks = [page.evaluate("getComputedStyle(document.querySelector('svg text')).fill") for page in pages]
    assert len(set(grounds)) == 2 and len(set(inks)) == 2
    pages[1].emulate_media(media="print", color_scheme="dark")
    assert pages[1].evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_overflows(visit: Any, folder: Path, width: int) -> None:
    page = visit(folder, width=width)
    page.evaluate(UNFOLD)
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    page.evaluate("document.querySelectorAll('.sorts thead button').forEach((button) => button.click())")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")


def test_sorting_by_click(visit: Any, folders: dict[str, Path]) -> None:
    folder = folders["troubled"]
    table = table_of(visit(folder), "Share of full by tuned layers")
    before, values = first_cells(table), [row["p"] for row in raw(folder, "shares")]
    known = sorted((float(value), n) for n, value in enumerate(values) if value)
    unknown = [before[n] for n, value in enumerate(values) if not value]
    assert "all" in unknown and len(known) > 2
    button, head = table.get_by_role("button", name="p of the difference"), table.locator("th[aria-sort]")
    assert head.count() == 0
    button.click()
    assert first_cells(table) == [before[n] for _, n in known] + unknown
    assert head.count() == 1 and head.get_attribute("aria-sort") == "ascending"
    button.click()
    assert first_cells(table) == [before[n] for _, n in reversed(known)] + unknown
    assert head.count() == 1 and head.get_attribute("aria-sort") == "descending"
    table.get_by_role("button", name="tuned").click()
    assert first_cells(table) == before


def test_sorting_by_keyboard(visit: Any, folders: dict[str, Path]) -> None:
    page = visit(folders["troubled"])
    table = table_of(page, "Accuracy by tuned layers")
    before, head = first_cells(table), table.locator("th[aria-sort]")
    region = page.get_by_role("region", name="Accuracy by tuned layers", exact=True)
    region.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending" and first_cells(table) == before
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "descending" and first_cells(table) == before[::-1]


def test_sorting_is_stable(visit: Any, folders: dict[str, Path]) -> None:
    table = table_of(visit(folders["troubled"]), "Cost and failures by tuned layers")
    failed = {row["tuned"]: row["failed"] for row in raw(folders["troubled"], "costs")}
    before = first_cells(table)
    assert len(set(failed.values())) == 2
    table.get_by_role("button", name="failed runs").click()
    good = [name for name, value in zip(before, failed.values(), strict=True) if value == "0"]
    assert first_cells(table)[: len(good)] == good
    table.get_by_role("button", name="failed runs").click()
    assert first_cells(table)[-len(good) :] == good


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
    title, name = table_that_is_there(folder)
    link = page.get_by_role("link", name=f"CSV of the table “{title}”", exact=True)
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == name
    assert Path(download.value.path()).read_bytes() == found[name]


def test_print_shows_everything_and_no_controls(visit: Any, folder: Path) -> None:
    page = visit(folder, width=PAPER)
    page.emulate_media(media="print")
    for details in page.locator("details").all():
        assert all(child.bounding_box()["height"] > 10 for child in details.locator("> :not(summary)").all())
    assert page.locator(".downloads:visible, nav:visible").count() == 0
    too_wide = "(most) => [...document.querySelectorAll('table')].filter((t) => t.getBoundingClientRect().right > most)"
    assert page.evaluate(f"(most) => ({too_wide})(most).map((table) => table.caption.innerText)", PAPER) == []
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_everything_can_be_read_without_script(visit: Any, folder: Path) -> None:
    page = visit(folder, java_script_enabled=False)
    assert page.locator("th button").count() == 0
    table = table_of(page, table_that_is_there(folder)[0])
    assert table.is_visible() and table.locator("thead").inner_text().strip()
    assert page.locator("thead th").all_inner_texts() and page.get_by_role("heading", level=1).is_visible()


def test_structure_for_screen_readers(visit: Any, folder: Path) -> None:
    page = visit(folder)
    page.evaluate(UNFOLD)
    for role in ("banner", "main", "navigation"):
        assert page.get_by_role(role).count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3, h4')].map((head) => Number(head.tagName[1]))")
    assert levels.count(1) == 1 == levels[0]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.locator("table").count() == page.locator("table > caption").count() > 5
    assert page.locator("th:not([scope])").count() == 0
    for names in ("[role=region]", "a[download]"):
        said = page.locator(names).evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")
        assert len(said) == len(set(said)) and all(said)
    assert (
        page.locator("figure svg").count()
        == page.locator("figure svg[role=img][aria-label]:not([aria-label=''])").count()
    )
    regions = page.locator(".scroll")
    assert regions.count() == page.locator(".scroll[tabindex='0'][role=region] > table").count()


def test_a_table_scrolls_in_its_own_region_by_keyboard(visit: Any, folders: dict[str, Path]) -> None:
    page = visit(folders["troubled"], width=360)
    region = page.get_by_role("region", name="Accuracy by tuned layers", exact=True)
    region.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert region.evaluate("(one) => one.scrollLeft") > 0
