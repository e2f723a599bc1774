"""Chromium without a window, told what to do through two pipes (the DevTools protocol)."""

import base64
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The path of a Chromium; None: there is none."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """A page that is shown at some width.

    Args:
        program: of `find`.
        folder: for the browser's own files.
    """

    def __init__(self, program: str, folder: Path):
        from_browser, to_us = os.pipe()
        from_us, to_browser = os.pipe()

        def take_pipes() -> None:
            taken = os.dup(from_us), os.dup(to_us)  # neither is 3 or 4 then
            for theirs, ours in zip((3, 4), taken, strict=True):
                os.dup2(ours, theirs)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        self._process = subprocess.Popen(
            [program, *options, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4, from_us, to_us),
            preexec_fn=take_pipes,
        )
        os.close(from_us)
        os.close(to_us)
        self._in, self._out, self._numbers = (
            os.fdopen(from_browser, "rb"),
            os.fdopen(to_browser, "wb"),
            itertools.count(1),
        )
        self._rest, self._session = b"", {}
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        self._ask("Page.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()

    def show(self, page: Path, width: int, is_dark: bool = False) -> None:
        """Loads a page at so many pixels."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=page.absolute().as_uri())
        while self.value("document.readyState") != "complete":
            pass

    def value(self, expression: str):
        """What a line of JavaScript gives, as JSON has it."""
        return self._ask("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self) -> bytes:
        """A PNG of the whole page."""
        found = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def _ask(self, method: str, **params) -> dict:
        number = next(self._numbers)
        self._out.write(json.dumps({"id": number, "method": method, "params": params} | self._session).encode() + b"\0")
        self._out.flush()
        while True:
            while b"\0" not in self._rest:
                read = self._in.read1(1 << 20)
                if not read:
                    raise RuntimeError("the browser has ended")
                self._rest += read
            text, _, self._rest = self._rest.partition(b"\0")
            told = json.loads(text)
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return told["result"]
