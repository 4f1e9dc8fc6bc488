"""The script of the paper's figures writes one PNG file for each that is asked for."""

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from benchmarks.figures.__main__ import main


def test_figures_are_drawn(tmp_path):
    names = ["figure1", "figure2", "figure3"]
    main(["--out", str(tmp_path), *(word for name in names for word in ("--only", name))])
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == [f"{name}.png" for name in names]
    for name in written:
        width, height = Image.open(tmp_path / name).size
        assert width > 500 and height > 200
