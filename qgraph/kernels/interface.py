"""The interface that the native extension has to have: a digest of its types.

Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
"""

INTERFACE = "0660491cf9e5035a"
