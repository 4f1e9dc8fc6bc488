"""Draw docs/images/report.png: the report of the digits network, as a browser shows it.

Usage: python docs/builder/report_picture.py

Needs chromium, and `pip install pillow`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs/images/report.png"
WIDTH, HEIGHT = 900, 2330
# A browser that starts for the first time, and stays off the network.
CHROMIUM = [
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        qgraph = Path(sys.executable).with_name("qgraph")
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        for command in (
            [sys.executable, ROOT / "examples/digits/files.py", "."],
            [qgraph, "quantize", "model.pb", "-c", "calib.npz", "-o", "out"],
            [qgraph, "verify", "out", "--format", "c", "--format", "engine"],
            [qgraph, "report", "out"],
        ):
            subprocess.run(command, cwd=folder, env=quiet, check=True, capture_output=True)
        options = [
            f"--user-data-dir={folder}/profile",
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={folder}/report.png",
        ]
        page = f"file://{folder}/out/report.html"
        subprocess.run([*CHROMIUM, *options, page], check=True, capture_output=True)
        Image.open(f"{folder}/report.png").convert("RGB").quantize(64).save(PICTURE, optimize=True)
    print(f"{PICTURE.relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
