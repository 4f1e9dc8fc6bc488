"""The exception for nodes of a file that the IR cannot express."""


class Inexpressible(Exception):
    """An importer or evaluator finds, deep inside, that it cannot express the node."""
