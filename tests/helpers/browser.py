"""A headless Chromium loads a page without any network and says what it found."""

import subprocess
from pathlib import Path

from tests.helpers.programs import find_program

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
         "--host-resolver-rules=MAP * ~NOTFOUND", "--no-first-run", "--disable-extensions")  # fmt: skip


def look_at(page: Path, home: Path) -> tuple[str, Path]:
    """The page as the browser understood it (HTML), and a screenshot. Errors of the page fail the test."""
    browser, shot = find_program(*NAMES), home / "page.png"
    command = [browser, *FLAGS, f"--user-data-dir={home / 'profile'}", "--window-size=1100,1600"]
    seen = subprocess.run([*command, f"--screenshot={shot}", page.as_uri()], capture_output=True, text=True, timeout=60,
                          check=True)  # fmt: skip
    dom = subprocess.run([*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=60,
                         check=True)  # fmt: skip
    for said in (seen.stderr, dom.stderr):
        assert "CONSOLE" not in said, said
    return dom.stdout, shot
