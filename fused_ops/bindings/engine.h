#pragma once

#include <nanobind/nanobind.h>

// Adds the integer engine to a module.
void bind_engine(nanobind::module_& module);

// Adds its kernels, one by one.
void bind_engine_kernels(nanobind::module_& module);

// Adds the actor.
void bind_actor(nanobind::module_& module);
