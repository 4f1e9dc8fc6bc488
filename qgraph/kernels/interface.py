"""The interface that the native extension has to have: a digest of its types.

Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
"""

INTERFACE = "dc353856bf9f1f3a"
