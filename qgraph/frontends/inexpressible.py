"""The exception by which what reads a node of a file says that it cannot."""


class Inexpressible(Exception):
    """An importer or evaluator finds, deep inside, that it cannot express the node."""
