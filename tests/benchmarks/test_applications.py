"""Networks of Keras are measured in processes with limits."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import applications
from benchmarks.real.resumed import Part


def row(part: Part) -> dict[str, object]:
    (values,) = part.rows
    return dict(zip(applications.COLUMNS, values, strict=True))


@pytest.mark.parametrize(
    ("program", "seconds", "reason"),
    [("sleep 60", 0.1, "not finished in 0.1 s"), ("exit 3", 60, "ended with code 3")],
)
def test_a_process_without_a_result_has_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, seconds: float, reason: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(applications, "SECONDS", seconds)
    found = row(applications._in_own_process("keras VGG16"))
    assert (found["network"], found["library"]) == ("VGG16", "keras")
    assert found["SQNR dB"] is None and reason in str(found["refused"])


def test_networks_that_scale_bytes_get_bytes() -> None:
    class Rescaling:
        pass

    class Model:
        layers = (Rescaling(),)

    scaled = applications._images(Model(), 4)
    assert scaled.shape == (applications.CALIBRATION, 4, 4, 3) and (scaled == np.rint(scaled)).all()
    Model.layers = ()
    assert applications._images(Model(), 4).min() < 0
