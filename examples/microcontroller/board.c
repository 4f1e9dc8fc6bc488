/* Start of a program on a Cortex-M: the table of vectors, and what runs first.
 *
 * The C library's `_start` clears memory and calls main. Files, arguments and printf go to the
 * host by semihosting (rdimon.specs).
 */
extern void _start(void);
extern char __stack[];

void reset(void) { _start(); }

static void fault(void) {
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))__stack, reset, fault, fault, fault, fault, fault,
};
