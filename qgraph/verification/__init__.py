"""Verification: compare every form of a network with the integer reference, at tolerance zero."""
