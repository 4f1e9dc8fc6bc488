"""The integer engine: a program as a file, what runs it, and both as a form."""

from qgraph.backends.engine.engine import LEVELS, Engine, levels
from qgraph.backends.engine.engine_form import EngineForm
from qgraph.backends.engine.file import engine_file
from qgraph.backends.engine.floats import FloatEngine

__all__ = ["LEVELS", "Engine", "EngineForm", "FloatEngine", "engine_file", "levels"]
