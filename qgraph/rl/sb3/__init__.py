"""Stable-baselines3: reading its policies, collecting with quantized actors, aware training.

Needs stable-baselines3 (`pip install 'qgraph-compiler[sb3]'`).

Examples:
    >>> from stable_baselines3 import PPO  # doctest: +SKIP
    >>> from qgraph.rl.policy import pack
    >>> from qgraph.rl.sb3 import QuantizedCollection, read
    >>> model = PPO("MlpPolicy", "CartPole-v1")  # doctest: +SKIP
    >>> model.learn(100_000, callback=QuantizedCollection(bits=8))  # doctest: +SKIP
    >>> packed = pack(read(model), read(model).head)  # doctest: +SKIP
"""

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    from qgraph.distribution import install_hint
    from qgraph.errors import UsageError

    raise UsageError(
        f"stable-baselines3 is missing ({error})",
        hint=install_hint("stable-baselines3", extra="sb3"),
    ) from None

from qgraph.rl.sb3.aware import QuantizationAware
from qgraph.rl.sb3.collect import QuantizedCollection
from qgraph.rl.sb3.export import export_onnx
from qgraph.rl.sb3.read import Sb3Policy, read

__all__ = ["QuantizationAware", "QuantizedCollection", "Sb3Policy", "export_onnx", "read"]
