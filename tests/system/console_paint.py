"""When a real browser shows the first of each page, in ms: ``console_paint.py ADDRESS CHROMIUM PATH…`` prints the slowest, as JSON."""

from __future__ import annotations

import json
import sys

from playwright.sync_api import sync_playwright

#: Once it is there. Playwright's own way to wait for something would have the page evaluate a text, which its policy forbids.
FIRST_PAINT = """() => new Promise((seen) => {
  const look = () => {
    const [paint] = performance.getEntriesByName("first-contentful-paint");
    paint ? seen(paint.startTime) : requestAnimationFrame(look);
  };
  look();
})"""


def main(address: str, chromium: str, paths: list[str]) -> None:
    shown: dict[str, float] = {}
    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"]).new_page()
        page.goto(address)
        page.fill("[name=user]", "guest")
        page.fill("[name=password]", "guest")
        page.keyboard.press("Enter")
        page.wait_for_selector(".findings")
        for path in paths:
            page.goto(address + path)
            shown[path] = page.evaluate(FIRST_PAINT)
    print(json.dumps(max(shown.items(), key=lambda each: each[1])))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
