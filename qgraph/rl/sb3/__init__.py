"""Stable-baselines3: reading its policies, collecting with quantized actors, aware training.

model = PPO("MlpPolicy", "CartPole-v1")
model.learn(100_000, callback=QuantizedCollection(bits=8))
packed = pack(read(model), read(model).head)

Needs stable-baselines3 (`pip install 'qgraph-compiler[sb3]'`).
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
