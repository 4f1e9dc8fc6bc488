/* Runs a network on all samples of `inputs.bin` and compares its outputs with `expected.bin`.
 *
 * Prints the number of samples, the number of bytes that differ, and the most stack that a run took.
 * INPUT_BYTES and OUTPUT_BYTES are sizes of a sample; `infer` is in the file of the network.
 */
#include <stdint.h>
#include <stdio.h>

#define PAINTED 24576 /* bytes of stack that are painted */
#define PAINT 0xa5

void prepare(void);
void infer(const void *input, void *output);

void measure_begin(void);
void measure_end(void);

__attribute__((noinline)) void measure_begin(void)
{
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void measure_end(void)
{
    __asm__ volatile("" ::: "memory");
}

static uint8_t input[INPUT_BYTES] __attribute__((aligned(16)));
static uint8_t output[OUTPUT_BYTES] __attribute__((aligned(16)));
static uint8_t expected[OUTPUT_BYTES];
static volatile uint8_t *bottom;

__attribute__((noinline)) static void paint(void)
{
    volatile uint8_t here = 0;

    bottom = &here - PAINTED;
    for (volatile uint8_t *at = bottom; at < &here - 64; ++at)
        *at = PAINT;
}

__attribute__((noinline)) static long used(void)
{
    volatile uint8_t here = 0;
    volatile uint8_t *at = bottom;

    while (at < &here && *at == PAINT)
        ++at;
    return (long)(&here - at);
}

int main(void)
{
    FILE *inputs = fopen("inputs.bin", "rb"), *outputs = fopen("expected.bin", "rb");
    long samples = 0, wrong = 0, most = 0;

    if (!inputs || !outputs)
        return 2;
    prepare();
    while (fread(input, 1, INPUT_BYTES, inputs) == INPUT_BYTES) {
        if (fread(expected, 1, OUTPUT_BYTES, outputs) != OUTPUT_BYTES)
            return 3;
        paint();
        measure_begin();
        infer(input, output);
        measure_end();
        const long stack = used();

        most = stack > most ? stack : most;
        for (int i = 0; i < OUTPUT_BYTES; ++i)
            wrong += output[i] != expected[i];
        ++samples;
    }
    printf("samples %ld wrong %ld stack %ld\n", samples, wrong, most);
    return 0;
}
