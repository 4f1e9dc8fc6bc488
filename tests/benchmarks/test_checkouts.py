"""Benchmarks that run the code of another checkout do not run the installed code."""

import os
import subprocess
import sys

from benchmarks.checkouts import variables_of

# What an editable install does: a finder before all others, installed by a .pth file.
FINDER = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "qgraph":
            return importlib.util.spec_from_file_location(name, {installed!r})

Finder.__module__ = "_editable_skbc_qgraph_compiler"
sys.meta_path.insert(0, Finder())
"""


def test_a_hook_of_an_editable_install_does_not_hide_a_checkout(tmp_path) -> None:
    installed, checkout = tmp_path / "installed.py", tmp_path / "checkout"
    installed.write_text("PLACE = 'installed'")
    (checkout / "qgraph").mkdir(parents=True)
    (checkout / "qgraph/__init__.py").write_text("PLACE = 'checkout'")
    python = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (site / "hook.pth").write_text("import hook")
    (site / "hook.py").write_text(FINDER.format(installed=str(installed)))

    def imported(**variables: str) -> str:
        command = [python, "-c", "import qgraph; print(qgraph.PLACE)"]
        environment = {**os.environ, **variables}
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    assert imported(PYTHONPATH=str(checkout)) == "installed"
    with variables_of(checkout) as variables:
        assert imported(**variables) == "checkout"
