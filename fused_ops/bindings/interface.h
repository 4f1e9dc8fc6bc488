// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
#pragma once

constexpr char kInterface[] = "24d6428987b386eb";
