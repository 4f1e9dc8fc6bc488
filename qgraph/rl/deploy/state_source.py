"""C for the states of a policy: codes that stay in its memory from each step to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qgraph.backends.c.source import Port
from qgraph.errors import UnsupportedError
from qgraph.program import Tensor
from qgraph.program.layers import elements
from qgraph.rl.deploy.network_policy import PolicyParts

RESET_DECLARED = """\
/* Begins an episode: the states become zeros. */
void {name}_reset_in({name}_memory *memory);
void {name}_reset(void);

"""
RESET = """
void {name}_reset_in({name}_memory *memory)
{{
{zeros}
}}
"""
STATIC_RESET = """
void {name}_reset(void)
{{
    {name}_reset_in(&static_memory);
}}
"""


@dataclass(frozen=True)
class CarriedState:
    """A state: the entry that takes its codes, and the exit that gives the next ones."""

    entry: Port
    exit: Port
    tensor: Tensor

    def copied(self) -> Sequence[str]:
        """Lines that keep the codes for the next step."""
        return self._each(f"({self.tensor.storage}_t)memory->{self.exit.name}[i]")

    def zeros(self) -> Sequence[str]:
        """Lines that set the codes to zero."""
        return self._each("0")

    def _each(self, value: str) -> Sequence[str]:
        return (
            f"for (int32_t i = 0; i < {elements(self.tensor)}; ++i)",
            f"    memory->{self.entry.name}[i] = {value};",
        )


def carried_states(
    parts: PolicyParts, entries: Sequence[Port], exits: Sequence[Port]
) -> tuple[CarriedState, ...]:
    """The states of a policy, with their members of the memory.

    Raises UnsupportedError for a state that is not carried as codes.
    """
    return tuple(_state(parts, entries, exits, *pair) for pair in parts.states.items())


def _state(
    parts: PolicyParts, entries: Sequence[Port], exits: Sequence[Port], name: str, value: str
) -> CarriedState:
    tensors = parts.program.tensors
    entered = [entry.tensor for entry in parts.program.entries if entry.source == name]
    entry = [port for port in entries if port.tensor in entered]
    left = [port for port in exits if port.tensor == value]
    if len(entry) != 1 or len(left) != 1:
        raise UnsupportedError(
            "this state enters or leaves the integer layers through float ops, or at two scales",
            node=name,
            hint="export the policy with states that recurrent layers take as they are",
        )
    before, after = tensors[entry[0].tensor], tensors[value]
    fits = before.low <= after.low and after.high <= before.high
    if before.exponent != after.exponent or not fits:
        raise UnsupportedError(
            "this state has another scale where it leaves than where it enters",
            node=name,
            hint="quantize the network again, with the state named",
        )
    return CarriedState(entry[0], left[0], before)
