// Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
#pragma once

constexpr char kInterface[] = "0660491cf9e5035a";
