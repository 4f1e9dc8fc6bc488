// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
#pragma once

constexpr char kInterface[] = "e7f0fb754658f54a";
