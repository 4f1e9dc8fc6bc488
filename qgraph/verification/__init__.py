"""Is every form of a network the integer reference? Compared code by code, tolerance zero."""
