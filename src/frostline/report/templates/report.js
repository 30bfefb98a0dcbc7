"use strict";
// The only script of a page: headers of tables become buttons that sort, and code gets a button that copies it.
// Without it everything can be read.
const unknownLast = (one, two, direction, compare) =>
  one === "" || two === "" ? (one === "") - (two === "") : direction * compare(one, two);
const asNumbers = (one, two) => Number(one) - Number(two);
const asTexts = (one, two) => one.localeCompare(two, "en", { numeric: true });

function sortBy(table, heads, column) {
  const head = heads[column];
  const descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const values = new Map(rows.map((row) => [row, row.cells[column].dataset.rank ?? ""]));
  const numeric = [...values.values()].every((value) => value === "" || Number.isFinite(Number(value)));
  const compare = numeric ? asNumbers : asTexts;
  rows.sort((one, two) => unknownLast(values.get(one), values.get(two), descending ? -1 : 1, compare));
  body.append(...rows);
}

for (const table of document.querySelectorAll("table.sorts")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Sort by this column";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sortBy(table, heads, column));
  });
}

// A browser that refuses to copy selects the text instead.
async function copy(code, button) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

for (const code of document.querySelectorAll("pre.copy > code")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", () => copy(code, button));
  code.after(button);
}

// On paper nothing is folded away.
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    details.dataset.folded = "";
  }
});
addEventListener("afterprint", () => {
  for (const details of document.querySelectorAll("details[data-folded]")) {
    details.open = false;
    delete details.dataset.folded;
  }
});
