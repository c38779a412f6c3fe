"""JupyterLab in a real Chromium: start the server, open a notebook, run it, look at what is on the screen."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
HANDLE = ".noUi-handle, .ui-slider-handle"  # of a slider in ipywidgets 8, 7
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTINGS = {
    # every cell in the page, also those outside the window
    "notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none", "kernelShutdown": True},
    "apputils-extension/notification.jupyterlab-settings": {"fetchNews": "false", "checkForUpdates": False},
}


def chromium():
    """Path of a Chromium, or None: Debian's, or the one in the environment variable CHROMIUM."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def server(folder, app="lab"):
    """A JupyterLab (or app="notebook") server on `folder`; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    home = Path(folder) / ".jupyter-for-tests"
    for name, values in SETTINGS.items():
        file = home / "settings" / "@jupyterlab" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")
    command = [sys.executable, "-m", f"jupyter{app}" if app == "lab" else app, "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=", "--expose-app-in-browser"]
    command += [f"--ServerApp.root_dir={folder}", "--ServerApp.port_retries=0"]
    environment = os.environ | {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTER_CONFIG_DIR": str(home)}
    with (home / "log.txt").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            address = f"http://127.0.0.1:{port}"
            _wait(lambda: urllib.request.urlopen(f"{address}/api", timeout=2), 60, "JupyterLab did not start", process)
            yield address
        finally:
            process.terminate()
            process.wait(20)


def _wait(attempt, seconds, failure, process):
    end = time.monotonic() + seconds
    while True:
        try:
            return attempt()
        except OSError as error:
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(failure) from error
            time.sleep(0.2)


@contextmanager
def browser():
    """Chromium under Playwright, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        try:
            yield opened
        finally:
            opened.close()


def eventually(page, check, seconds=30):
    """What `check()` returns, once it no longer raises AssertionError; its last one after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            return check()
        except AssertionError:
            if time.monotonic() > end:
                raise
            page.page.wait_for_timeout(50)


class Page:
    """A notebook in JupyterLab, or in Notebook 7 with app="notebook".

    `errors` collects console errors, `outside` what was asked of other hosts.
    """

    def __init__(self, browser, address, notebook, size=(1100, 1000), app="lab"):
        self.page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        self.errors, self.outside = [], []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: self._note(r.url, address))
        self.page.goto(f"{address}/{'lab/tree' if app == 'lab' else 'notebooks'}/{notebook}?reset")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=90_000)
        self.page.wait_for_function(
            "window.jupyterapp && jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel"
        )

    def _note(self, url, address):
        if not url.startswith((address, address.replace("http", "ws"), "data:", "blob:")):
            self.outside.append(url)

    def command(self, name, **arguments):
        return self.page.evaluate("([name, a]) => jupyterapp.commands.execute(name, a)", [name, arguments])

    def run_all(self, seconds=300):
        """Run all cells and wait until the kernel is idle again."""
        self.page.evaluate(
            "() => { window.__done = false;"
            "jupyterapp.commands.execute('notebook:run-all-cells').then(() => { window.__done = true }) }"
        )
        self.page.wait_for_function("window.__done === true", timeout=seconds * 1000)
        self.page.wait_for_timeout(500)

    def theme(self, name):
        self.command("apputils:change-theme", theme=f"JupyterLab {name}")
        self.page.wait_for_function(f"document.body.dataset.jpThemeName === 'JupyterLab {name}'")
        self.page.wait_for_timeout(500)

    def close(self):
        self.page.close()
