"""Instructions of the engine on 64-bit Arm, counted by emulation, beside those of XNNPACK."""
