// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
#pragma once

constexpr char kInterface[] = "dc353856bf9f1f3a";
