"""Texts of the files around a network in C; `qgraph.backends.c.layouts` fills them in."""

from __future__ import annotations

PROPERTIES = """\
name={net}
version={version}
author=qgraph
maintainer=qgraph
sentence=An integer neural network in C99.
paragraph={NET}_run computes codes from codes, without floats and without allocation.
category=Data Processing
url=https://pypi.org/project/qgraph-compiler
architectures=*
includes={net}.h
"""

SKETCH = """\
// Runs the network on one sample, and compares its outputs with those of the integer reference.
#include <string.h>

#include <{net}.h>

#include "{net}_sample.h"

static {net}_arena arena;
{outputs}

void setup() {{
    Serial.begin(115200);
}}

void loop() {{
    const unsigned long start = micros();
    {net}_run_in(&arena, {arguments});
    const unsigned long stop = micros();
    const bool equal = {same};

    Serial.print(equal ? "equal, " : "different, ");
    Serial.print(stop - start);
    Serial.println(" microseconds");
    delay(1000);
}}
"""

MODULE = """\
name: {net}
build:
  cmake: .
  kconfig: Kconfig
samples:
  - sample
"""

MODULE_CMAKE = """\
if(CONFIG_QGRAPH_{NET})
  zephyr_include_directories(include)
  zephyr_library_named(qgraph_{net})
  zephyr_library_sources(src/{net}.c)
  if(CONFIG_QGRAPH_{NET}_PLAIN)
    zephyr_library_compile_definitions({NET}_PLAIN)
  endif()
  if(NOT CONFIG_QGRAPH_{NET}_STATIC_ARENA)
    zephyr_library_compile_definitions({NET}_NO_STATIC_ARENA)
  endif()
endif()
"""

KCONFIG = """\
config QGRAPH_{NET}
\tbool "Integer network {net}"
\thelp
\t  Functions {net}_run and {net}_run_in, in {net}.h.

if QGRAPH_{NET}

config QGRAPH_{NET}_PLAIN
\tbool "Plain C99 instead of the SIMD of the processor"

config QGRAPH_{NET}_STATIC_ARENA
\tbool "Memory for {net}_run"
\thelp
\t  Without it, only {net}_run_in exists, which runs in memory of the caller.

endif
"""

SAMPLE_CMAKE = """\
cmake_minimum_required(VERSION 3.20.0)
list(APPEND ZEPHYR_EXTRA_MODULES ${{CMAKE_CURRENT_SOURCE_DIR}}/..)
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project({net}_sample LANGUAGES C)

target_sources(app PRIVATE src/main.c)
"""

PROJECT = """\
CONFIG_QGRAPH_{NET}=y
CONFIG_PRINTK=y
"""

SAMPLE_YAML = """\
sample:
  name: Integer network {net}
tests:
  sample.{net}:
    harness: console
    harness_config:
      type: one_line
      regex:
        - "^equal$"
"""

MAIN = """\
/* Runs the network on one sample, and compares its outputs with those of the integer reference. */
#include <string.h>

#include <zephyr/sys/printk.h>

#include "{net}_sample.h"

static {net}_arena arena;
{outputs}

int main(void)
{{
    {net}_run_in(&arena, {arguments});
    printk("%s\\n", {same} ? "equal" : "different");
    return 0;
}}
"""
