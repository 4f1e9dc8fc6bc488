"""The networks on which steps and efforts of static mode are compared, with their images."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks import assets
from benchmarks.real.mobilenet import LOGITS, enlarged
from qgraph.choices import CalibrationMethod
from qgraph.frontends import load
from qgraph.ir.graph import Graph
from qgraph.ir.types import Array
from qgraph.passes import PassManager
from qgraph.quant.plan import Plan
from qgraph.quant.profile import load_profile
from qgraph.recipes import FLOAT
from qgraph.rewrite.trace import Trace
from qgraph.static.agreement import Agreement, agreement
from qgraph.static.build import build


@dataclass(frozen=True)
class Case:
    """A network with calibration images, and test images that calibration does not use.

    onnx: its file, if it came from one; images are [n, channels, height, width] then.
    """

    title: str
    model: Graph
    calibration: Array
    test: Array
    images: str
    onnx: Path | None = None
    original: Graph = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "original", self.model.copy())
        PassManager(FLOAT).run(self.original)

    def built(self, plan: Plan, profile: str = "graffitist-int8") -> tuple[Graph, Graph]:
        """The float network that the plan makes, and the quantized one."""
        data = {self.model.inputs[0]: self.calibration}
        return build(self.model, load_profile(profile), plan, data, Trace())

    def agreement(self, quantized: Graph) -> Agreement:
        """The agreement of the outputs with those of the float network, on the test images."""
        return agreement(self.original, quantized, {self.model.inputs[0]: self.test})


def cifar() -> Case:
    """`cifar_10_model`, calibrated on its training images."""
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    calibration, tests = train[:512].astype(np.float32), test[:1000].astype(np.float32)
    note = "cifar_10_model: 512 CIFAR-10 training images to calibrate, 1,000 test images"
    return Case("cifar_10_model", load(assets.cifar10_network()), calibration, tests, note)


def mobilenet_v1() -> Case:
    """MobileNetV1, which was trained on photos, on enlarged images of CIFAR-10."""
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    model = load(assets.mobilenet_v1(), outputs=[LOGITS])
    note = "MobileNetV1: 64 CIFAR-10 training images at 224 to calibrate, 100 test images"
    return Case("MobileNetV1", model, enlarged(train[:64]), enlarged(test[:100]), note)


def face_mask() -> Case:
    """A MobileNetV2 with two classes, on enlarged images of CIFAR-10."""
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    model = load(assets.face_mask_network())
    note = "face-mask: 64 CIFAR-10 training images at 224 to calibrate, 100 test images"
    return Case("face-mask", model, enlarged(train[:64]), enlarged(test[:100]), note)


def resnet50() -> Case:
    """An untrained ResNet50, which is used to measure time."""
    import tf_keras

    tf_keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.h5"
        tf_keras.applications.ResNet50(weights=None).save(path)
        model = load(path)
    (train, _), (test, _) = assets.cifar10_train(), assets.cifar10_test()
    note = "ResNet50: random weights, 64 CIFAR-10 training images at 224, 32 test images"
    return Case("ResNet50", model, enlarged(train[:64]), enlarged(test[:32]), note)


def digits() -> Case:
    """The network of the example on its own images."""
    from sklearn.datasets import load_digits

    examples = Path(__file__).resolve().parents[2] / "examples/digits"
    images = (load_digits().images[..., None] / 16).astype(np.float32)
    images = images[np.random.default_rng(0).permutation(len(images))]
    note = "digits: 512 images to calibrate, 1,000 others"
    return Case("digits", load(examples / "digits.pb"), images[:512], images[512:1512], note)


CASES: Mapping[str, Callable[[], Case]] = {
    "cifar_10_model": cifar,
    "MobileNetV1": mobilenet_v1,
    "face-mask": face_mask,
    "ResNet50": resnet50,
    "digits": digits,
}
BY_MSE = Plan(method=CalibrationMethod.MSE)
