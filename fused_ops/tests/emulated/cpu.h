// Where AVX-512 is emulated, this CPU is said to have all.
#pragma once

#define __builtin_cpu_supports(feature) 1
