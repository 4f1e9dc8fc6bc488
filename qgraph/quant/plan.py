"""What static mode does to a network beside inserting quantizers, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """The choices of static mode; the default is to do nothing but calibrate.

    `constant_channels`: ratio of `fold-constant-channels`, 0 leaves them. `equalize`: "" for no,
    `weights`, or `biases` to count biases into the ranges. `method`: how activation thresholds are
    found. `reconstruct`: weights are rounded layer by layer against the float output.
    `correct_bias`: the mean error of each layer goes into its bias.
    """

    constant_channels: float = 0.0
    equalize: str = ""
    method: str = "kl_j"
    reconstruct: bool = False
    correct_bias: bool = False

    def __str__(self) -> str:
        steps = [f"thresholds by {self.method}"]
        if self.constant_channels:
            steps.append(f"constant channels folded (below {self.constant_channels:g})")
        if self.equalize:
            steps.append(f"channels equalized ({self.equalize})")
        if self.reconstruct:
            steps.append("weights reconstructed")
        if self.correct_bias:
            steps.append("biases corrected")
        return ", ".join(steps)


PLAIN = Plan()
