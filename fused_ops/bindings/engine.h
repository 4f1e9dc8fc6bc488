#pragma once

#include <nanobind/nanobind.h>

// Adds the integer engine to a module.
void bind_engine(nanobind::module_& module);
