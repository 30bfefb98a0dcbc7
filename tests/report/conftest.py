"""Fixtures of the tests of reports: real figures, a browser, pages, and sweeps with a saved model."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frostline.report.rebuild import write_report
from pages import MAKERS, drawn
from tiny import LABELS, saved_sweep, tiny_bert_folder

UNFOLD = "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """The system's Chromium, headless."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install -e '.[test]')")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("needs Chromium, which is not installed")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def page_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the folder of a page by its name. Each page is made once; ``real`` is the page of a real sweep."""
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("pages") / name
            with drawn():
                if name == "real":
                    write_report(Path(shutil.copytree(request.getfixturevalue("finished_sweep"), made[name])))
                else:
                    MAKERS[name](made[name])
        return made[name]

    return folder


@pytest.fixture
def visit(browser: Any) -> Iterator[Any]:
    """Opens the page of a folder, by default unfolded. At the end it checks that it logged nothing and loaded nothing."""
    contexts, messages, requests = [], [], []

    def open_page(folder: Path, *, width: int = 1280, unfold: bool = True, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page, address = context.new_page(), (folder / "report.html").as_uri()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        context.route("**/*", lambda route: route.continue_() if route.request.url == address else route.abort())
        page.goto(address)
        requests.remove(address)
        if unfold:
            page.evaluate(UNFOLD)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert messages == [] and [address for address in requests if not address.startswith("data:")] == []


@pytest.fixture(scope="session")
def licensed_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT whose own card names a license."""
    folder = tiny_bert_folder(tmp_path_factory.mktemp("licensed"))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\nA tiny model.\n")
    return folder


@pytest.fixture(scope="session")
def classified(licensed_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished classification sweep with its model. Tests must not write into it."""
    return saved_sweep(licensed_bert, tmp_path_factory.mktemp("classified") / "out", lambda n: LABELS[n])


@pytest.fixture(scope="session")
def regressed(licensed_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished regression sweep with its model. Tests must not write into it."""
    out = tmp_path_factory.mktemp("regressed") / "out"
    return saved_sweep(licensed_bert, out, lambda n: n / 2.5, task_type="regression")
