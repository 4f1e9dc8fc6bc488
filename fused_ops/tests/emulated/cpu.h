// For builds that emulate AVX-512 and AMX: every instruction set counts as supported, and Linux as
// allowing AMX tiles.
#pragma once

#include <unistd.h>

inline long emulated_syscall(long, int, int) { return 0; }

#define __builtin_cpu_supports(feature) 1
#define syscall emulated_syscall
