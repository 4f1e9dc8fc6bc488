/* Start of a program on a Cortex-M: the table of vectors, and what runs first.
 *
 * The C library's `_start` clears memory and calls main. Files, arguments and printf go to the
 * host by semihosting (rdimon.specs).
 */
extern void _start(void);
extern void _exit(int code);
extern char __stack[];

#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
#define CPACR (*(volatile unsigned long *)0xe000ed88)

/* Allow floats and vectors; before, each of their instructions is a fault. */
void reset(void) {
    CPACR |= 0xful << 20;
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    _start();
}
#else
void reset(void) { _start(); }
#endif

/* A fault ends the emulation with this exit code. */
static void fault(void) { _exit(70); }

__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {
    (void (*)(void))__stack, reset, fault, fault, fault, fault, fault,
};
