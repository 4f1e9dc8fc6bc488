"""C in the folders of Arduino and Zephyr: the example runs the network and compares its outputs.

Arduino's and Zephyr's own tools are not needed: a few functions stand for them.
"""

import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import yaml

from qgraph.backends.c.c_form import CForm, compiler
from qgraph.backends.c.layouts import FOLDERS, TEXTS, placed
from qgraph.backends.network_forms import Network
from qgraph.choices import CodeLayout
from qgraph.errors import UsageError
from qgraph.exports import export, index_of
from qgraph.ir.graph import Graph
from qgraph.program import run
from qgraph.quant.profile import Profile
from qgraph.stored import load_network
from qgraph.verification.verify import verify
from tests.helpers.c_programs import images_that_are_one_batch, mixed_samples, needs_compiler

WARNINGS = ("-Wall", "-Wextra", "-Werror")
ARDUINO_H = """\
#include <stdio.h>
#include <stdlib.h>
struct Port {
    void begin(long) {}
    void print(const char *text) { fputs(text, stdout); }
    void print(unsigned long number) { printf("%lu", number); }
    void println(const char *text) { puts(text); exit(0); }
};
static Port Serial;
static inline unsigned long micros() { return 0; }
static inline void delay(unsigned long) {}
"""
ARDUINO_MAIN = "int main() { setup(); for (;;) loop(); }\n"
# What stands for Zephyr: options from prj.conf, its functions for libraries, and its printk.
ZEPHYR_CMAKE = """\
project(Zephyr C)
add_executable(app)
file(STRINGS ${CMAKE_SOURCE_DIR}/prj.conf options REGEX "=y$")
foreach(option ${options})
  string(REGEX REPLACE "=y$" "" option ${option})
  set(${option} y)
endforeach()
macro(zephyr_include_directories)
  foreach(folder ${ARGN})
    target_include_directories(app PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    list(APPEND folders ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
  endforeach()
endmacro()
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_include_directories(${name} PRIVATE ${folders})
  target_link_libraries(app PRIVATE ${name})
endmacro()
macro(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endmacro()
macro(zephyr_library_compile_definitions)
  target_compile_definitions(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endmacro()
target_include_directories(app PRIVATE ${CMAKE_CURRENT_LIST_DIR})
foreach(module ${ZEPHYR_EXTRA_MODULES})
  add_subdirectory(${module} modules)
endforeach()
"""
PRINTK_H = "#include <stdio.h>\n#define printk printf\n"


def network(program):
    return Network(Graph(program.name), program, Profile("p"), {})


def laid_out(layout, tmp_path, program=None):
    folder = tmp_path / "made"
    folder.mkdir()
    CForm(layout).write(network(program or mixed_samples()), folder)
    return folder


def done(*command, **options):
    found = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert found.returncode == 0, found.stderr
    return found.stdout


def options_of(text):
    """The keys and values of library.properties."""
    return dict(line.split("=", 1) for line in text.splitlines())


def run_sketch(folder, tmp_path):
    (folder / "Arduino.h").write_text(ARDUINO_H)
    (sketch,) = folder.glob("examples/*/*.ino")
    assert sketch.stem == sketch.parent.name and re.fullmatch(
        r"[A-Za-z0-9][\w.-]{0,62}", sketch.stem
    )
    whole = tmp_path / "sketch.cpp"
    whole.write_text('#include "Arduino.h"\n' + sketch.read_text() + ARDUINO_MAIN)
    headers = [f"-I{place}" for place in (folder, folder / "src", sketch.parent)]
    objects = [tmp_path / "net.o", tmp_path / "sketch.o"]
    (source,) = (folder / "src").glob("*.c")
    done(compiler(), "-std=gnu11", *WARNINGS, *headers, "-c", source, "-o", objects[0])
    done("g++", "-std=gnu++17", *WARNINGS, *headers, "-c", whole, "-o", objects[1])
    done("g++", *objects, "-o", tmp_path / "sketch")
    return done(tmp_path / "sketch")


@needs_compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize("program", [mixed_samples, images_that_are_one_batch])
def test_the_sketch_of_the_arduino_library_compares_the_outputs(program, tmp_path) -> None:
    folder = laid_out("arduino", tmp_path, program())
    assert run_sketch(folder, tmp_path).startswith("equal, ")
    held = folder / "examples/net/net_sample.h"
    held.write_text(
        re.sub(r"(\w+_sample_(?:y_value|sum)\[\w+\] = \{\s*)(-?\d+)", r"\g<1>77", held.read_text())
    )
    assert run_sketch(folder, tmp_path).startswith("different, ")


@pytest.mark.skipif(shutil.which("arm-none-eabi-g++") is None, reason="no compiler for Arm")
def test_the_arduino_library_compiles_for_a_cortex_m4(tmp_path) -> None:
    folder = laid_out("arduino", tmp_path)
    flags = ["-O2", "-mcpu=cortex-m4", "-mthumb", *WARNINGS, f"-I{folder}/src", "-c"]
    done("arm-none-eabi-gcc", "-std=gnu11", *flags, folder / "src/net.c", "-o", tmp_path / "a.o")
    (tmp_path / "s.cpp").write_text(ARDUINO_H + (folder / "examples/net/net.ino").read_text())
    flags += [f"-I{folder}/examples/net"]
    done("arm-none-eabi-g++", "-std=gnu++17", *flags, tmp_path / "s.cpp", "-o", tmp_path / "b.o")


def test_the_arduino_library_has_the_fields_of_the_specification(tmp_path) -> None:
    folder = laid_out("arduino", tmp_path)
    found = options_of((folder / "library.properties").read_text())
    required = {
        "name",
        "version",
        "author",
        "maintainer",
        "sentence",
        "paragraph",
        "category",
        "url",
    }
    assert required | {"architectures", "includes"} == set(found) and all(found.values())
    assert re.fullmatch(r"\d+\.\d+\.\d+", found["version"])
    assert (folder / "src" / found["includes"]).is_file()
    assert not list((folder / "src").glob("*_test.c")), "it has a main of its own"


@needs_compiler
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
@pytest.mark.parametrize("options", ["", "CONFIG_QGRAPH_NET_PLAIN=y\n"])
def test_the_sample_of_the_zephyr_module_compares_the_outputs(options, tmp_path) -> None:
    folder, base = laid_out("zephyr", tmp_path), tmp_path / "zephyr_base"
    (base / "zephyr/sys").mkdir(parents=True)
    (base / "ZephyrConfig.cmake").write_text(ZEPHYR_CMAKE)
    (base / "zephyr/sys/printk.h").write_text(PRINTK_H)
    with (folder / "sample/prj.conf").open("a") as file:
        file.write(options)
    known = {**os.environ, "ZEPHYR_BASE": str(base)}
    place = tmp_path / "build"
    done("cmake", "-S", folder / "sample", "-B", place, env=known)
    done("cmake", "--build", place, env=known)
    assert done(place / "app") == "equal\n"


def test_the_zephyr_module_states_its_files(tmp_path) -> None:
    folder = laid_out("zephyr", tmp_path)
    module = yaml.safe_load((folder / "zephyr/module.yml").read_text())
    assert module["build"] == {"cmake": ".", "kconfig": "Kconfig"} and module["samples"] == [
        "sample"
    ]
    assert all((folder / name).exists() for name in ("CMakeLists.txt", "Kconfig", "sample"))
    names = re.findall(r"^config (\w+)", (folder / "Kconfig").read_text(), re.M)
    used = re.findall(r"CONFIG_(\w+)", (folder / "CMakeLists.txt").read_text())
    assert set(names) == set(used)
    sample = yaml.safe_load((folder / "sample/sample.yaml").read_text())
    assert list(sample["tests"]) == ["sample.net"]


@pytest.mark.parametrize("layout", CodeLayout)
def test_the_sample_has_the_codes_of_the_program(layout, tmp_path) -> None:
    program = mixed_samples()
    (held,) = laid_out(layout, tmp_path, program).rglob("net_sample.h")
    arrays = re.findall(r"_sample_(\w)_value\[\w+\] = \{([^}]*)\}", held.read_text())
    codes = {name: np.array(text.split(","), int) for name, text in arrays}
    (wanted,) = run(program, {"x": codes["x"].reshape(2, 3)}, ["y"]).values()
    np.testing.assert_array_equal(codes["y"].reshape(wanted.shape), wanted)
    assert len(np.unique(wanted)) > 2


def test_every_layout_is_written_and_found(tmp_path) -> None:
    assert set(TEXTS) == set(CodeLayout)
    assert placed(tmp_path, "a.c") == tmp_path / "a.c"
    for place in FOLDERS:
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{place}.c").touch()
        assert placed(tmp_path, f"{place}.c") == tmp_path / place / f"{place}.c"


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown layout `mbed`; choose arduino or zephyr"):
        CForm("mbed")


def test_float_islands_have_no_layout(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("qgraph.program.Program.has_islands", True)
    why = CForm("zephyr").refusal(network(mixed_samples()))
    assert why is not None and "layout zephyr" in why and "--layout" in why
    assert CForm().refusal(network(mixed_samples())) is None


@needs_compiler
@pytest.mark.parametrize("layout", CodeLayout)
def test_verify_takes_a_layout(layout, digits, tmp_path) -> None:
    export(load_network(digits), "c", tmp_path / "made", options={"layout": layout})
    assert {"inputs.bin", "outputs.bin"} <= {
        name.rpartition("_")[2] for name in index_of(tmp_path / "made").files
    }
    found = verify(digits, files=tmp_path / "made")
    assert found.equal and found.compared.tallies["c"].wrong == 0
    if layout == "arduino" and shutil.which("g++"):
        assert run_sketch(tmp_path / "made", tmp_path).startswith("equal, ")
