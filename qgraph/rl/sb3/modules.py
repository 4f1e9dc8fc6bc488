"""Modules of stable-baselines3 and sb3_contrib as steps of an actor program."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch import nn

from qgraph.errors import UnsupportedError
from qgraph.foreign import TorchModule
from qgraph.ir.types import Array
from qgraph.rl.pytorch.modules import ModuleReader, numbers
from qgraph.rl.sb3.normalizer import Normalizer


class Sb3ModuleReader(ModuleReader):
    """Reads feature extractors, normalizers, and the norms of CrossQ too."""

    def normalize(self, normalizer: Normalizer) -> None:
        """The steps in front of the policy: an affine step and a clip."""
        if self.images:
            raise UnsupportedError("VecNormalize over images of 0..255 is not supported")
        if len(self.shape) > 1:
            self.add("flatten", "flattened")
        self.add("affine", "normalized", scale=normalizer.scale, offset=normalizer.offset)
        self.add("clip", "clipped", low=lambda: -normalizer.limits(), high=normalizer.limits)

    def features(self, extractor: TorchModule) -> None:
        if self.images:
            channels = self.shape[-1]
            scale = np.full(channels, 1 / 255, np.float32)
            self.add("affine", "scaled", scale=lambda: scale, offset=lambda: np.zeros_like(scale))
        if type(extractor) is CombinedExtractor and all(
            type(part) is nn.Flatten for part in extractor.extractors.values()
        ):
            return  # the parts of a dictionary are one after the other already
        if type(extractor) is FlattenExtractor:
            self.module(extractor.flatten, "flatten")
        elif type(extractor) is NatureCNN and self.images:
            self.modules(extractor.cnn, "cnn")
            self.modules(extractor.linear, "linear")
        else:
            raise UnsupportedError(
                f"actors do not support `{type(extractor).__name__}`",
                node="features_extractor",
                hint="FlattenExtractor, CombinedExtractor without images, or NatureCNN on images "
                "of 0..255",
            )

    def other(self, module: TorchModule, name: str) -> None:
        kind = type(module)
        if kind.__name__ == "BatchRenorm1d" and kind.__module__.startswith("sb3_contrib."):
            self._batch_renorm(module, name)
        else:
            super().other(module, name)

    def _batch_renorm(self, module: TorchModule, name: str) -> None:
        """CrossQ's, as it acts: by running statistics."""
        flattened = self.flattened

        def scale() -> Array:
            factor = numbers(module.scale) if module.affine else 1.0
            return np.asarray(factor / np.sqrt(numbers(module.ra_var) + module.eps))

        def offset() -> Array:
            bias = numbers(module.bias) if module.affine else 0.0
            return np.asarray(bias - numbers(module.ra_mean) * scale())

        read_scale = self.ordered(scale)
        self.flattened = flattened
        read_offset = self.ordered(offset)
        self.flattened = flattened
        self.add("affine", name, scale=read_scale, offset=read_offset)


def layers(policy: TorchModule) -> Iterator[TorchModule]:
    """Its layers with kernels, of actors and critics."""
    return (m for m in policy.modules() if isinstance(m, nn.Linear | nn.Conv2d))
