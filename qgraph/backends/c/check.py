"""The test program: it reads samples, runs them, and writes or compares the outputs."""

from __future__ import annotations

import numpy as np

from qgraph.backends.c.source import CUnit, Port
from qgraph.names import literal
from qgraph.program.layers import elements

CHECK = """\
/* Runs {net} on samples from a file.
 *
 *     {net}_test INPUTS OUTPUTS          writes the outputs
 *     {net}_test INPUTS --check OUTPUTS  compares them with the file; prints PASS or FAIL
 *
 * INPUTS: for each sample, the codes of every input, in the order of the header. Each code has the
 * bytes of its type, little-endian. OUTPUTS: in the same way, the codes of every output and, if
 * compiled with {NET}_TRACE, of every tensor listed below, in that order.
 */
#include "{net}.h"

#include <stdio.h>
#include <string.h>

#ifdef {NET}_TRACE
#define SAMPLE_BYTES {traced_bytes} /* of the outputs */
#else
#define SAMPLE_BYTES {bytes}
#endif

typedef struct {{
    const char *name;
    int32_t begin; /* in the bytes of a sample */
    int32_t codes;
    int bytes; /* of a code */
}} tensor;

static const tensor tensors[] = {{
{outputs}
#ifdef {NET}_TRACE
{traced}
#endif
}};
static unsigned char produced[SAMPLE_BYTES], expected[SAMPLE_BYTES];

static void put(const tensor *of, int32_t index, int64_t code)
{{
    unsigned char *to = produced + of->begin + index * of->bytes;

    for (int k = 0; k < of->bytes; ++k)
        to[k] = (unsigned char)((uint64_t)code >> (8 * k) & 255);
}}

/* Reads a code. Returns 0 at the end of the file, -1 if the code is incomplete, -2 if it is outside
 * low..high, otherwise 1. */
static int get(FILE *file, int bytes, int64_t low, int64_t high, int64_t *code)
{{
    uint64_t bits = 0, sign = (uint64_t)1 << (8 * bytes - 1);

    for (int k = 0; k < bytes; ++k) {{
        const int byte = getc(file);

        if (byte == EOF)
            return k ? -1 : 0;
        bits |= (uint64_t)byte << (8 * k);
    }}
    *code = (int64_t)(bits & (sign - 1));
    if (bits & sign)
        *code = low < 0 ? *code - (int64_t)(sign - 1) - 1 : *code + (int64_t)(sign - 1) + 1;
    return *code < low || *code > high ? -2 : 1;
}}

#ifdef {NET}_TRACE
void {net}_trace(int number, int32_t index, int64_t code)
{{
    put(&tensors[{exits} + number], index, code);
}}
#endif

static int compare(long sample)
{{
    for (size_t t = 0; t < sizeof tensors / sizeof *tensors; ++t) {{
        const tensor *of = &tensors[t];

        for (int32_t i = 0; i < of->codes; ++i) {{
            const int32_t at = of->begin + i * of->bytes;

            if (memcmp(produced + at, expected + at, (size_t)of->bytes) != 0) {{
                printf("FAIL: sample %ld, %s, code %ld differs\\n", sample, of->name, (long)i);
                return 0;
            }}
        }}
    }}
    return 1;
}}

int main(int count, char **words)
{{
{buffers}
    const int check = count == 4 && strcmp(words[2], "--check") == 0;
    FILE *inputs = count > 2 ? fopen(words[1], "rb") : NULL;
    const char *mode = check ? "rb" : "wb";
    FILE *outputs_file = inputs && (check || count == 3) ? fopen(words[count - 1], mode) : NULL;
    long sample = 0;
    int64_t code = 0;

    if (!outputs_file) {{
        fprintf(stderr, "usage: %s INPUTS [--check] OUTPUTS\\n", words[0]);
        return 2;
    }}
    for (;; ++sample) {{
        int read = 1, begun = 0;

{reads}
        if (read < 0 || (read == 0 && begun)) {{
            fprintf(stderr, "%s: sample %ld %s\\n", words[1], sample,
                    read == -2 ? "has a code out of range" : "is incomplete");
            return 2;
        }}
        if (read == 0)
            break;
{runs}
{writes}
        if (check) {{
            if (fread(expected, 1, SAMPLE_BYTES, outputs_file) != SAMPLE_BYTES) {{
                printf("FAIL: the file of outputs ends before sample %ld\\n", sample);
                return 1;
            }}
            if (!compare(sample))
                return 1;
        }} else if (fwrite(produced, 1, SAMPLE_BYTES, outputs_file) != SAMPLE_BYTES) {{
            fprintf(stderr, "%s: cannot be written\\n", words[2]);
            return 2;
        }}
    }}
    if (fclose(outputs_file) != 0)
        return 2;
    if (check)
        printf("PASS: %ld samples\\n", sample);
    return 0;
}}
"""


def check(unit: CUnit) -> str:
    """The whole file."""
    tensors, begin, rows = unit.program.tensors, 0, []
    for name in (*(p.tensor for p in unit.exits), *unit.traced):
        size = np.dtype(tensors[name].storage).itemsize
        rows.append(f"    {{{literal(name)}, {begin}, {elements(tensors[name])}, {size}}},")
        begin += size * elements(tensors[name])
    exits = len(unit.exits)
    return CHECK.format(
        net=unit.net,
        NET=unit.net.upper(),
        bytes=output_bytes(unit, traced=False),
        traced_bytes=output_bytes(unit, traced=True),
        outputs="\n".join(rows[:exits]),
        traced="\n".join(rows[exits:]),
        exits=exits,
        buffers="\n".join(_buffer(unit, p) for p in (*unit.entries, *unit.exits, *unit.passed_on)),
        reads="\n".join(_read(unit, p) for p in unit.entries),
        runs="\n".join(f"        {run.name}({run.arguments});" for run in unit.runs),
        writes="\n".join(_write(i, unit, p) for i, p in enumerate(unit.exits)),
    )


def output_bytes(unit: CUnit, *, traced: bool) -> int:
    """Size in bytes of the outputs for one sample."""
    names = (*(p.tensor for p in unit.exits), *(unit.traced if traced else ()))
    tensors = [unit.program.tensors[name] for name in names]
    return sum(elements(t) * np.dtype(t.storage).itemsize for t in tensors)


def _macro(unit: CUnit, port: Port) -> str:
    return f"{unit.net}_{port.name}".upper()


def _buffer(unit: CUnit, port: Port) -> str:
    kind = unit.program.tensors[port.tensor].storage
    return f"    static {kind}_t {port.name}[{_macro(unit, port)}_SIZE];"


def _read(unit: CUnit, port: Port) -> str:
    kind, macro = unit.program.tensors[port.tensor].storage, _macro(unit, port)
    return f"""\
        for (int32_t i = 0; read > 0 && i < {macro}_SIZE; ++i) {{
            read = get(inputs, sizeof *{port.name}, {macro}_LOW, {macro}_HIGH, &code);
            {port.name}[i] = ({kind}_t)code;
            begun |= read > 0;
        }}"""


def _write(i: int, unit: CUnit, port: Port) -> str:
    return f"""\
        for (int32_t i = 0; i < {_macro(unit, port)}_SIZE; ++i)
            put(&tensors[{i}], i, {port.name}[i]);"""
