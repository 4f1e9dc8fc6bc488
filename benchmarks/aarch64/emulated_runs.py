"""Programs for 64-bit Arm, run by QEMU on a given processor, with their instructions counted."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CPU_FILE = """\
processor	: 0
BogoMIPS	: 50.00
Features	: {features}
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: {part}
CPU revision	: 4

"""


@dataclass(frozen=True)
class Processor:
    """A processor that QEMU emulates.

    part: its number in /proc/cpuinfo, from which XNNPACK chooses kernels. level: of the engine.
    """

    name: str
    model: str
    part: str
    features: str
    level: str


# What Linux shows of these processors.
V8 = "fp asimd aes pmull sha1 sha2 crc32 cpuid"
V8_2 = f"{V8} atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
PROCESSORS = (
    Processor("Cortex-A53", "cortex-a53", "0xd03", V8, "neon"),
    Processor("Neoverse N1", "neoverse-n1", "0xd0c", V8_2, "neon-dotprod"),
)


@dataclass(frozen=True)
class Emulator:
    """Runs programs under QEMU with a plugin that counts instructions.

    root: a folder with the libraries of 64-bit Arm (`qemu-aarch64 -L`). folder: for the plugin and
    its files.
    """

    root: Path
    folder: Path

    def counts(
        self,
        processor: Processor,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> list[int]:
        """Instructions between each pair of marks (`instruction_marks.c`)."""
        self._describe(processor)
        marks = self.folder / "marks.txt"
        emulated = ["qemu-aarch64", "-L", str(self.root), "-cpu", processor.model]
        for name, value in (environment or {}).items():
            emulated += ["-E", f"{name}={value}"]
        plugin = ["-plugin", f"{self._plugin()},to={marks}"]
        subprocess.run([*emulated, *plugin, *command], check=True, stderr=subprocess.DEVNULL)
        found = [int(line) for line in marks.read_text("utf-8").split()]
        return [end - begin for begin, end in itertools.pairwise(found)][::2]

    def _plugin(self) -> Path:
        made = self.folder / "instruction_marks.so"
        if not made.exists():
            source = str(HERE / "instruction_marks.c")
            subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", str(made)], check=True)
        return made

    def _describe(self, processor: Processor) -> None:
        """Write the file from which programs learn about the processor; QEMU shows the host's."""
        file = self.root / "proc/cpuinfo"
        file.parent.mkdir(exist_ok=True)
        text = CPU_FILE.format(features=processor.features, part=processor.part)
        file.write_text(text, "utf-8")
