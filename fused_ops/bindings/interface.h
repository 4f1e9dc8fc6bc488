// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
#pragma once

constexpr char kInterface[] = "86b7355c2cc2acf4";
