"""Chromium, driven by Playwright: pages are opened as a person would, and everything that they say or ask is kept.

Where one of the two is missing the test is skipped, and with CI=true it fails.
"""

import os
import shutil
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")


def require(*packages):
    """Skip, or with CI=true fail, unless there are a browser and these packages."""
    lacking = [f"pip install {name.replace('_', '-')}" for name in packages if find_spec(name) is None]
    lacking += [] if CHROMIUM else ["apt-get install chromium"]
    if lacking:
        said = f"the page is not tested in a browser: {'; '.join(lacking)}"
        pytest.fail(said) if os.environ.get("CI") == "true" else pytest.skip(said)


@contextmanager
def opened(address, width=1440, dark=False):
    """The page of an address; `page.said` holds its console and errors, `page.asked` the addresses it asked for."""
    require("playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-component-update", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(180_000)  # a machine may be busy
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        yield page
        browser.close()


def axe(page):
    """What axe-core finds on the page that matters: [rule, impact, element]."""
    require("playwright", "axe_playwright_python")
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        [each["id"], each["impact"], each["nodes"][0]["html"][:100]]
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
