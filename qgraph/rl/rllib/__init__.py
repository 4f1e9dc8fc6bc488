"""RLlib: modules that collect with quantized weights and learn in float.

Needs RLlib (`pip install 'ray[rllib]' torch`).

Examples:
    >>> from ray.rllib.algorithms.ppo import PPOConfig  # doctest: +SKIP
    >>> from ray.rllib.core.rl_module.rl_module import RLModuleSpec  # doctest: +SKIP
    >>> from qgraph.rl.rllib import QuantizedPPOModule
    >>> config = PPOConfig().environment("CartPole-v1").rl_module(  # doctest: +SKIP
    ...     rl_module_spec=RLModuleSpec(module_class=QuantizedPPOModule)
    ... )
"""

try:
    import ray.rllib  # noqa: F401
except ImportError as error:
    from qgraph.errors import UsageError

    raise UsageError(f"RLlib is missing ({error})", hint="pip install 'ray[rllib]' torch") from None

from qgraph.rl.rllib.modules import QuantizedActing, QuantizedPPOModule, QuantizedSACModule

__all__ = ["QuantizedActing", "QuantizedPPOModule", "QuantizedSACModule"]
