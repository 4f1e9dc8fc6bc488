#pragma once

#include <nanobind/nanobind.h>

// Adds shared memory for learner, quantizer and actors to a module.
void bind_broadcast(nanobind::module_& module);
