"""The story of a failure in a real browser, with Playwright, which this is run with: ``console_browser.py ADDRESS CHROMIUM FOLDER``.

Says at its end what it saw, as JSON: where its clicks led, and what is wrong with the pages by themselves.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, sync_playwright

SIZES = ((1280, 900), (360, 740))
PATIENCE_MS = 20_000
MOST_TABS = 200
#: Texts that lie over one another, and those that are cut off.
SPOILED = """() => {
  const leaves = [...document.querySelectorAll("header *, main *, footer *")].filter((each) =>
    !each.children.length && each.textContent.trim() && each.checkVisibility({visibilityProperty: true}) && !each.closest(".hide, .skip"));
  const boxes = leaves.flatMap((each) => [...each.getClientRects()].map((box) => [each, box]));
  const over = ([a, p], [b, q]) => a !== b && Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2 &&
    Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4;
  const found = boxes.flatMap((one, at) => boxes.slice(at + 1).filter((other) => over(one, other)).map((other) =>
    `${one[0].textContent.trim().slice(0, 40)} lies over ${other[0].textContent.trim().slice(0, 40)}`));
  const cut = leaves.filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).overflowX === "hidden");
  return [...found, ...cut.map((each) => `${each.textContent.trim().slice(0, 40)} is cut off`)];
}"""


def log_in(page: Page, address: str) -> None:
    page.goto(address)
    page.fill("[name=user]", "guest")
    page.fill("[name=password]", "guest")
    page.keyboard.press("Enter")
    page.wait_for_selector(".findings")


def reach(page: Page, wanted: str) -> None:
    """By the Tab key alone: what has this text in front, or this name."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        text, name = page.evaluate("[document.activeElement.innerText || '', document.activeElement.name || '']")
        if text.strip().startswith(wanted) or name == wanted:
            return
    raise AssertionError(f"no key leads to {wanted} on {page.url}")


def choose(page: Page, wanted: str, leads_to: str) -> None:
    reach(page, wanted)
    page.keyboard.press("Enter")
    page.wait_for_url(leads_to)


def story(page: Page, address: str, pictures: Path) -> dict[str, Any]:
    """From what is wrong now to what has arrived, by keys alone."""

    def picture(name: str) -> None:
        page.screenshot(path=pictures / f"console-{name}.png")

    log_in(page, address)
    picture("overview")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/faults/3-*")
    picture("fault")
    fault = page.inner_text("h1")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages/*")
    picture("message")
    message, died = page.url, page.locator("text=dead-lettered to DLQ.orders").count()
    choose(page, "Send back…", "**/redrives/new*")
    one = page.inner_text(".lead")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead-letters")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/dead-letters?queue=*")
    choose(page, "Send back all…", "**/redrives/new*")
    if not page.locator("[name=canary]").is_visible():
        reach(page, "How")
        page.keyboard.press("Enter")
    reach(page, "canary")
    page.keyboard.press("Control+a")
    page.keyboard.type("2")
    choose(page, "Reckon again", "**canary=2*")
    page.evaluate("document.activeElement.blur()")
    picture("dry-run")
    plan = page.inner_text(".lead")
    choose(page, "Send 6 back", "**/redrives/1")
    page.wait_for_selector("h1 .tag.good", timeout=PATIENCE_MS)
    picture("redrive")
    sent = page.inner_text(".figures")
    page.keyboard.press("/")
    page.keyboard.type(message.rpartition("/")[2])
    page.keyboard.press("Enter")
    page.wait_for_url(message)
    page.locator("text=succeeded at attempt 1").scroll_into_view_if_needed()
    picture("arrived")
    arrived = page.locator("text=succeeded at attempt 1").count()
    return {"fault": fault, "died": died, "one": one, "plan": plan, "sent": sent.split()[1], "arrived": arrived}


def wrong_with(page: Page, address: str, paths: list[str], size: tuple[int, int], scheme: str) -> list[str]:
    """What overlaps something or the edge, and what axe-core finds."""
    found = []
    for path in paths:
        page.goto(address + path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path} at {size[0]}: {wide} wide"] if wide > size[0] else []
        found += [f"{path} at {size[0]}, {scheme}: {each}" for each in page.evaluate(SPOILED)]
        axe = Axe().run(page).response["violations"]
        found += [f"{path} at {size[0]}, {scheme}: {each['id']} {each['nodes'][0]['html'][:120]}" for each in axe]
    return found


def opened(browser: Any, size: tuple[int, int], scheme: str, complaints: list[str]) -> Page:
    page: Page = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme).new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    return page


def main(address: str, chromium: str, pictures: Path, paths: list[str]) -> None:
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for size in SIZES:
            for scheme in ("light", "dark"):
                page = opened(browser, size, scheme, complaints)
                log_in(page, address)
                complaints += wrong_with(page, address, paths, size, scheme)
                page.context.close()
        page = opened(browser, SIZES[0], "light", complaints)
        seen = story(page, address, pictures)
        complaints += wrong_with(page, address, ["/redrives", "/redrives/1"], SIZES[0], "light")
        browser.close()
    print(json.dumps({**seen, "wrong": complaints}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4:])
