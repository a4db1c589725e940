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


def log_in(page: Page, address: str) -> None:
    page.goto(address)
    page.fill("[name=user]", "guest")
    page.fill("[name=password]", "guest")
    page.keyboard.press("Enter")
    page.wait_for_selector(".findings")


def story(page: Page, address: str, pictures: Path) -> dict[str, Any]:
    """From what is wrong now to what has arrived, and by keys alone where a list is gone through."""

    def picture(name: str) -> None:
        page.screenshot(path=pictures / f"console-{name}.png")

    log_in(page, address)
    picture("overview")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/faults/3-*")
    picture("fault")
    fault = page.inner_text("h1")
    page.click(".links a")
    page.wait_for_url("**/messages/*")
    picture("message")
    message, died = page.url, page.locator("text=dead-lettered to DLQ.orders").count()
    page.click("text=Send back…")
    page.wait_for_url("**/redrives/new*")
    one = page.inner_text(".lead")
    page.goto(f"{address}/dead-letters?queue=DLQ.orders")
    picture("dead-letters")
    page.click("text=Send back all…")
    page.fill("[name=canary]", "2")
    page.click("text=Reckon again")
    page.wait_for_url("**canary=2*")
    picture("dry-run")
    plan = page.inner_text(".lead")
    page.click("main button.primary")
    page.wait_for_url("**/redrives/1")
    page.wait_for_selector("h1 .tag.good", timeout=PATIENCE_MS)
    picture("redrive")
    sent = page.inner_text(".figures")
    page.goto(message)
    arrived = page.locator("text=succeeded at attempt 1").count()
    return {"fault": fault, "died": died, "one": one, "plan": plan, "sent": sent.split()[1], "arrived": arrived}


def wrong_with(page: Page, address: str, paths: list[str], size: tuple[int, int], scheme: str) -> list[str]:
    """What overlaps the edge, and what axe-core finds."""
    found = []
    for path in paths:
        page.goto(address + path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        found += [f"{path} at {size[0]}: {wide} wide"] if wide > size[0] else []
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
