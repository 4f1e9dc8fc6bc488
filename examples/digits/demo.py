"""Quantize a small real network, then compare it with float on labelled images.

python examples/digits/demo.py [OUTPUT_DIRECTORY]

Needs: qgraph, scikit-learn (`pip install scikit-learn`).
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from files import write

HERE = Path(__file__).parent


def qgraph(*arguments: str | Path) -> None:
    """Show a command, then run it."""
    words = [str(argument) for argument in arguments]
    print(f"$ qgraph {shlex.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "qgraph", *words], check=True)
    print()


def main() -> None:
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "out"
    files = output.with_name(output.name + "-files")
    write(files)
    qgraph("quantize", files / "model.pb", "-c", files / "calib.npz", "-o", output, "--force")
    print("Test images, used neither to train nor to calibrate:", flush=True)
    qgraph("evaluate", output, "--data", files / "test.npz")
    if shutil.which("qgraph") is None:  # as in `make demo`
        activate = Path(sys.executable).with_name("activate")
        print(f"To use the command qgraph in this shell: . {shlex.quote(str(activate))}")


if __name__ == "__main__":
    main()
