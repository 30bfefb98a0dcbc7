"""Sortable and scrollable tables in a real browser."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any


def table_of(page: Any, title: str) -> Any:
    return page.get_by_role("region", name=title, exact=True).get_by_role("table")


def first_cells(table: Any) -> list[str]:
    return [text.split("\n")[0] for text in table.locator("tbody th").all_inner_texts()]


def raw(folder: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "tables" / f"{name}.csv").read_text())))


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


def test_sorting_is_stable(visit: Any, page_folder: Callable[[str], Path]) -> None:
    table = table_of(visit(page_folder("with_failures")), "Failures by tuned layers")
    failed = {row["tuned"]: row["failed"] for row in raw(page_folder("with_failures"), "failures")}
    before = first_cells(table)
    assert len(set(failed.values())) == 2
    table.get_by_role("button", name="failed runs").click()
    good = [name for name, value in zip(before, failed.values(), strict=True) if value == "0"]
    assert first_cells(table)[: len(good)] == good
    table.get_by_role("button", name="failed runs").click()
    assert first_cells(table)[-len(good) :] == good


def test_a_table_scrolls_in_its_own_region_by_keyboard(visit: Any, page_folder: Callable[[str], Path]) -> None:
    page = visit(page_folder("with_failures"), width=360)
    region = page.get_by_role("region", name="Accuracy by tuned layers", exact=True)
    region.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)
    assert region.evaluate("(one) => one.scrollLeft") > 0
