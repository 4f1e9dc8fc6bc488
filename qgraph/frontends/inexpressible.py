"""The exception for nodes of a file that the IR cannot express."""


class Inexpressible(Exception):
    """Raised deep inside an importer or evaluator that cannot express the node."""
