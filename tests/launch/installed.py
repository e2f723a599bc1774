"""Cohort installed into an environment of its own: packages come from this interpreter, nothing from the checkout."""

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from documents import ROOT, Block

# Runs files one after the other, each with globals of its own: packages are imported once. No module may be of the
# checkout or its build.
RUN_FILES = """
import sys
checkout, *files = sys.argv[1:]
for path in files:
    with open(path) as file:
        exec(compile(file.read(), path, "exec"), {"__name__": "__main__"})
modules = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
found = [path for path in modules if path.startswith((checkout + "/python/", checkout + "/tests/"))]
assert not found, f"of the checkout: {found}"
assert any("site-packages/cohort_gnn/" in path for path in modules)
"""
SCRIPT = """#!{python}
import sys
from importlib.metadata import EntryPoint

sys.exit(EntryPoint("cohort", "{entry}", "console_scripts").load()())
"""


@dataclass
class Installed:
    """An environment with Cohort.

    Attributes:
        folder: that of the environment; PATH of `environment` is its folder bin alone.
        environment: of its programs.
    """

    folder: Path
    environment: dict[str, str]

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    def run(self, *command, cwd: Path, seconds: float = 240, **environment) -> str:
        """What a command prints; a program without a slash is one of the environment."""
        program, *arguments = map(str, command)
        if "/" not in program:
            program = str(self.folder / "bin" / program)
        result = subprocess.run(
            [program, *arguments],
            cwd=cwd,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
        )
        assert result.returncode == 0, f"{program} {arguments}: exit code {result.returncode}\n{result.stdout[-4000:]}"
        return result.stdout

    def run_blocks(self, blocks: list[Block], cwd: Path, build: Path) -> None:
        """Python blocks that follow one another run in one process."""
        waiting = []
        for block in [*blocks, None]:
            if block is not None and block.language == "python":
                waiting.append(cwd / f"block_{block.line}.py")
                waiting[-1].write_text(block.text)
                continue
            if waiting:
                self.run("python", "-c", RUN_FILES, build, *waiting, cwd=cwd)
                waiting = []
            if block is not None:
                self.run("/bin/bash", "-euo", "pipefail", "-c", block.text, cwd=cwd)


def project() -> dict:
    """The table [project] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def environment(folder: Path) -> Installed:
    """An environment that has the packages of this interpreter, and no Cohort yet."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COHORT_"))}
    kept |= {"PATH": f"{folder}/bin", "CUDA_VISIBLE_DEVICES": "", "COHORT_TESTS_FRESH": "1"}
    installed = Installed(folder, kept)
    names = [re.match(r"\w+", line)[0] for line in project()["dependencies"]]
    borrowed = [path for path in sys.path if any((Path(path) / name).is_dir() for name in names)]
    assert borrowed
    # A line of a *.pth names a folder whose own *.pth files are not read: none leads to a build.
    (installed.packages / "packages.pth").write_text("\n".join(borrowed) + "\n")
    return installed


def add_command(installed: Installed) -> None:
    """What pip makes of [project.scripts]."""
    script = installed.folder / "bin/cohort"
    script.write_text(SCRIPT.format(python=installed.python, entry=project()["scripts"]["cohort"]))
    script.chmod(0o755)
