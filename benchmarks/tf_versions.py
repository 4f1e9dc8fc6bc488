"""Show that one build of the TensorFlow ops works with several TensorFlow versions.

``python -m benchmarks.tf_versions 2.15.1 2.18.1`` installs each version into a separate environment
(in `$QGRAPH_CACHE`, or `~/.cache/qgraph`), adds this checkout with its compiled libraries, and runs
the tests of the fused ops.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

import qgraph
from qgraph.train.fused import library_path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/train/test_quantizer_forms.py",
    "tests/train/test_epilogue.py",
    "tests/rl/half/test_precision.py",
)


def environment(version: str) -> Path:
    """The Python of an environment with this TensorFlow."""
    cache = Path(os.environ.get("QGRAPH_CACHE", Path.home() / ".cache" / "qgraph"))
    folder = cache / f"tensorflow-{version}-py{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        minor = ".".join(version.split(".")[:2])
        packages = [f"tensorflow-cpu=={version}", f"tf-keras=={minor}.*", "networkx", "pyyaml"]
        packages += ["threadpoolctl", "pytest", "hypothesis"]
        subprocess.run([python, "-m", "pip", "install", "-qq", *packages], check=True)
        (folder / "installed").touch()
    return python


def serves(version: str) -> bool:
    """Whether the tests pass, and none of the fused form is skipped."""
    python = str(environment(version))
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    lines = done.stdout.splitlines() or done.stderr.splitlines()
    print(f"TensorFlow {version}: {lines[-1] if lines else done.returncode}")
    return done.returncode == 0


def main() -> None:
    """Exit with 1 if a version does not work."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    versions = parser.parse_args().versions
    path = library_path()
    if path is None or path.parent != Path(qgraph.__file__).parent:
        sys.exit("build first, and copy _native*.so and _tf_ops.so into qgraph/")
    worked = [serves(version) for version in versions]
    sys.exit(not all(worked))


if __name__ == "__main__":
    main()
