// Tables that are sorted by a click on a heading, and filtered by what is typed above them. Without it the page is the same, but still.
"use strict";
const UNITS = { ms: 1, s: 1e3, min: 6e4, h: 3.6e6, d: 8.64e7 };
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

// What a cell is sorted by: a time, a span, a number or its text.
function key(cell) {
  const text = cell.firstChild ? cell.innerText.split("\n")[0].replace(/\u00a0/g, " ").trim() : "";
  const at = /^(\d\d) (\w{3}) (\d\d):(\d\d)(?::(\d\d))?$/.exec(text);
  if (at) return Date.UTC(2000, MONTHS.indexOf(at[2]), +at[1], +at[3], +at[4], +(at[5] || 0));
  const parts = text.split(/(?<=[a-z]) (?=\d)/).map((part) => /^([\d.,]+) ?(ms|s|min|h|d)$/.exec(part));
  if (parts.every(Boolean)) return parts.reduce((sum, part) => sum + parseFloat(part[1].replace(/,/g, "")) * UNITS[part[2]], 0);
  const number = /^[<>]? ?([−+-]?[\d,]*\.?\d+)/.exec(text);
  return number ? parseFloat(number[1].replace(/,/g, "").replace("−", "-")) : text === "–" ? -Infinity : text.toLowerCase();
}

function compared(one, other) {
  if (typeof one !== typeof other) return typeof one === "number" ? -1 : 1;
  return one < other ? -1 : one > other ? 1 : 0;
}

function sorted(table, column, heading) {
  const down = heading.getAttribute("aria-sort") !== "descending";
  for (const each of table.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.rows].slice(1);
  rows.sort((one, other) => (down ? -1 : 1) * compared(key(one.cells[column]), key(other.cells[column])));
  rows[0].parentNode.append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  const [head, ...rows] = table.rows;
  for (const row of rows) [...row.cells].forEach((cell, at) => (cell.dataset.of = head.cells[at].innerText));
  [...head.cells].forEach((heading, at) => {
    if (!heading.textContent || rows.length < 2) return;
    heading.tabIndex = 0;
    heading.onclick = () => sorted(table, at, heading);
    heading.onkeydown = (event) => event.key === "Enter" && sorted(table, at, heading);
  });
  if (rows.length < 5) continue;
  const input = Object.assign(document.createElement("input"), { type: "search", placeholder: "Filter", className: "filter" });
  input.setAttribute("aria-label", "Filter the rows");
  input.oninput = () => rows.forEach((row) => (row.hidden = !row.textContent.toLowerCase().includes(input.value.toLowerCase())));
  table.before(input);
}

// What a link leads to is opened, and everything for printing.
function shown() {
  const place = location.hash && document.getElementById(location.hash.slice(1));
  for (let each = place; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
  if (place) place.scrollIntoView();
}
addEventListener("hashchange", shown);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
shown();
