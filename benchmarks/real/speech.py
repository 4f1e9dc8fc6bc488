"""Silero VAD, streamed: speech of espeak-ng in noise, frame by frame, with carried states."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from benchmarks import assets
from benchmarks.real.lines import known_words
from benchmarks.real.measure import sqnr
from benchmarks.registry import AssetUnavailable
from benchmarks.tables import Table
from qgraph.compiler import quantize
from qgraph.interpret import evaluate
from qgraph.ir.types import Array
from qgraph.quant.profile import Profile, load_profile, parse_profile
from qgraph.quantized import Quantized
from qgraph.runtime import Session
from qgraph.verification.verify import verify

RATE, FRAME, CONTEXT, STEPS, UNITS = 16000, 512, 64, 96, 128
CALIBRATION, TEST = 8, 24
LOUD = 1e-5  # mean square of a frame with speech, of full scale
VOICES = tuple(
    language + variant
    for language in ("en-us", "en-gb", "de", "fr-fr", "es", "it", "pt", "nl")
    for variant in ("", "+f2", "+m3", "+f4")
)
SHAPE: Mapping[str, tuple[int, ...]] = MappingProxyType({"input": (1, FRAME + CONTEXT)})
STATES: Mapping[str, str] = MappingProxyType({"h": "hn", "c": "cn"})
FORMS = ("engine", "onnx-integer", "c")
PLAN = "equalize=biases,method=mse,reconstruct"
WIDE = {
    "bits": {"input": 16, "table": 16, "output": 16},
    "overrides": [{"match": "/stft/*", "activation": 16}],
}


def tables() -> Iterator[Table]:
    frames, speech = sequences(CALIBRATION + TEST, seed=0)
    test, labels = frames[CALIBRATION:], speech[CALIBRATION:]
    floats = float_scores(test)
    table = Table(
        "Speech in noise, streamed",
        {"network": "", "profile": "", "AUC": ".4f", "as float": ".1%",
         "SQNR dB": ".1f", "streamed as one network": "", "differ from reference": "",
         "seconds": ".0f"},
        notes=[
            f"sequences of {STEPS} frames of {FRAME} samples at {RATE} Hz, with speech of "
            f"{len(VOICES)} voices of espeak-ng in three kinds of noise, 0 to 20 dB: "
            f"{CALIBRATION} to calibrate, {TEST} others",
            f"8 bits by plan `{PLAN}`; float is ONNX Runtime",
            "AUC: of the scores of all frames, with speech and without; as float: frames on the "
            "same side of 0.5",
            "wide: 16 bits for the waveform, the STFT, indices of tables and the score; weights "
            "and all other activations have 8 bits",
            "streamed as one network: scores and states that differ between steps with carried "
            "codes and the quantized graph in numpy",
        ],
    )  # fmt: skip
    table.add("float", "-", auc(floats, labels), 1.0, float("inf"), "-", "-", 0.0)
    for profile in (load_profile("graffitist-int8"), parse_profile(WIDE, "wide")):
        _measure(profile, frames[:CALIBRATION], test, labels, floats, table)
    yield table


def _measure(
    profile: Profile, calibration: Array, test: Array, labels: Array, floats: Array,
    table: Table,
) -> None:  # fmt: skip
    start = time.perf_counter()
    made = quantize(
        assets.speech_network(), {"input": calibration}, profile=profile, plan=PLAN,
        input_shapes=SHAPE, states=STATES,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        out = made.save(Path(folder) / "out")
        stream = Session.open(out).stream(len(test))
        found = stream.run({"input": test})["speech_probs"].reshape(floats.shape)
        tallies = verify(out, forms=FORMS).compared.tallies
    wrong = sum(tally.wrong for tally in tallies.values())
    elements = sum(tally.elements for tally in tallies.values())
    table.add(
        "8 bits", profile.name, auc(found, labels),
        float(((found > 0.5) == (floats > 0.5)).mean()), sqnr(floats, found),
        _differences(made, test[0], found[0], {n: x[:1] for n, x in stream.states.items()}),
        f"{wrong} of {elements:,} in {', '.join(tallies)}", seconds,
    )  # fmt: skip


def _differences(made: Quantized, frames: Array, scores: Array, states: Mapping[str, Array]) -> str:
    """Scores, and last states, of one sequence that differ from the quantized graph's own."""
    graph = made.graph
    now = {name: np.zeros_like(state) for name, state in states.items()}
    different = 0
    for frame, score in zip(frames, scores, strict=True):
        found = evaluate(graph, {"input": frame[None], **now})
        different += int((found["speech_probs"] != score).sum())
        now = {name: found[output] for name, output in STATES.items()}
    different += sum(int((now[name] != state).sum()) for name, state in states.items())
    count = len(frames) + sum(state.size for state in states.values())
    return f"{different} of {count}"


def float_scores(sequences: Array) -> Array:
    """The scores of the float network by ONNX Runtime, [n, steps]; it runs whole sequences."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(assets.speech_network()), providers=["CPUExecutionProvider"]
    )
    states = {name: np.zeros((1, 1, UNITS), np.float32) for name in STATES}
    runs = [session.run(["speech_probs"], {"input": each, **states}) for each in sequences]
    return np.stack([np.ravel(scores) for (scores,) in runs])


def sequences(count: int, seed: int) -> tuple[Array, Array]:
    """Frames with the last samples before them, [n, steps, 576], and which have speech."""
    rng = np.random.default_rng(seed)
    made = [_sequence(rng) for _ in range(count)]
    return np.stack([frames for frames, _ in made]), np.stack([speech for _, speech in made])


def _sequence(rng: np.random.Generator) -> tuple[Array, Array]:
    samples = FRAME * STEPS
    speech, place = np.zeros(samples), int(rng.integers(RATE // 2, RATE))
    while place < samples - RATE // 2:
        said = _said(rng)[: samples - place]
        speech[place : place + len(said)] = (
            said * 10 ** rng.uniform(-1.2, -0.3) / np.abs(said).max()
        )
        place += len(said) + int(rng.integers(RATE // 4, RATE))
    power = (speech.reshape(STEPS, FRAME) ** 2).mean(1)
    level = np.sqrt(power[power > LOUD].mean()) if (power > LOUD).any() else 0.1
    heard = speech + _noise(rng, samples) * level * 10 ** (-rng.uniform(0, 20) / 20)
    padded = np.concatenate([np.zeros(CONTEXT), heard.clip(-1, 1)]).astype(np.float32)
    frames = [padded[i * FRAME : i * FRAME + FRAME + CONTEXT] for i in range(STEPS)]
    return np.stack(frames), power > LOUD


def _said(rng: np.random.Generator) -> Array:
    """A few words at 16 kHz, from -1 to 1."""
    from scipy.signal import resample_poly

    program = shutil.which("espeak-ng")
    if program is None:
        raise AssetUnavailable("espeak-ng is missing: apt-get install espeak-ng")
    words = [word for word in known_words() if word.isalpha()]
    text = " ".join(rng.choice(words, rng.integers(3, 7)))
    voice, speed = VOICES[rng.integers(len(VOICES))], str(rng.integers(130, 200))
    said = subprocess.run(
        [program, "-v", voice, "-s", speed, "--stdout", text], capture_output=True, check=True
    ).stdout
    begin = said.index(b"data") + 8
    content = said[begin : begin + (len(said) - begin) // 2 * 2]
    return np.asarray(resample_poly(np.frombuffer(content, np.int16) / 32768, 320, 441))


def _noise(rng: np.random.Generator, samples: int) -> Array:
    """White noise, rumble, or hum with noise, of power 1."""
    kind, noise = rng.integers(3), rng.normal(size=samples)
    if kind == 1:
        noise = np.cumsum(noise)
        noise -= np.convolve(noise, np.ones(400) / 400, "same")
    elif kind == 2:
        seconds = np.arange(samples) / RATE
        tones = [np.sin(2 * np.pi * (f * seconds + rng.random())) for f in rng.uniform(50, 1500, 3)]
        noise = 0.3 * noise + np.sum(tones, axis=0)
    return np.asarray(noise / np.sqrt(np.mean(noise**2)))


def auc(scores: Array, labels: Array) -> float:
    """The share of pairs of a frame with speech and one without that are in order; ties half."""
    _, place, counts = np.unique(scores.ravel(), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    speech = labels.ravel()
    positive, negative = int(speech.sum()), int((~speech).sum())
    return float((ranks[speech].sum() - positive * (positive + 1) / 2) / (positive * negative))
