"use strict";
// What the pages do beyond showing: times in the reader's zone, copying, and keys. Without it they work all the same.

const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const DAY = { year: "numeric", month: "short", day: "numeric" };
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const CLOCK = new Intl.DateTimeFormat(undefined, { ...TIME, fractionalSecondDigits: 3 });
const EXACT = new Intl.DateTimeFormat(undefined, { ...DAY, ...TIME, fractionalSecondDigits: 3 });

function span(seconds) {
  const at = UNITS.findIndex(([, size]) => Math.abs(seconds) >= size);
  if (at < 0) return "0 s";
  const [unit, size] = UNITS[at];
  const whole = Math.floor(Math.abs(seconds) / size);
  const rest = at < 2 ? Math.floor((Math.abs(seconds) % size) / UNITS[at + 1][1]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${UNITS[at + 1][0]}` : `${whole} ${unit}`;
}

function showTimes() {
  for (const each of document.querySelectorAll("time[data-time]")) {
    const at = new Date(each.dateTime);
    const since = (Date.now() - at) / 1000;
    const ago = since >= 0 ? `${span(since)} ago` : `in ${span(since)}`;
    const exact = EXACT.format(at);
    const shown = { ago, exact, clock: CLOCK.format(at) }[each.dataset.time];
    const title = each.dataset.time === "exact" ? `${ago}, ${each.dateTime}` : exact;
    if (each.textContent !== shown) each.textContent = shown;
    each.title = title;
  }
}

function move(step) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return;
  const now = rows.findIndex((each) => each.contains(document.activeElement));
  const row = rows[Math.min(rows.length - 1, Math.max(0, now + step))];
  const to = row.matches("a") ? row : row.querySelector("a");
  if (to) to.focus();
}

const PAGES = { o: "/", f: "/faults", d: "/dead-letters", r: "/redrives", q: "/queues" };
let goes = 0;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const keys = document.getElementById("keys");
  const going = Date.now() - goes < 1500;
  goes = event.key === "g" ? Date.now() : 0;
  if (!keys || keys.open) return;
  const search = document.getElementById("search");
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "?") keys.showModal();
  else if (going && PAGES[event.key]) location.assign(PAGES[event.key]);
  else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

document.documentElement.classList.add("scripted");
showTimes();
setInterval(showTimes, 5000);
document.addEventListener("htmx:after:swap", showTimes);
