"""The interface that the native extension has to have: a digest of its types.

Made from qgraph/_native.pyi by `make golden`. Do not edit: a test compares them.
"""

INTERFACE = "e7f0fb754658f54a"
