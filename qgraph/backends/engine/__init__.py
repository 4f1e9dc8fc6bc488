"""The integer engine: the file of a program, the runtime, and both as a form."""

from qgraph.backends.engine.engine import LEVELS, Engine, levels
from qgraph.backends.engine.engine_form import EngineForm
from qgraph.backends.engine.file import engine_file
from qgraph.backends.engine.floats import FloatEngine

__all__ = ["LEVELS", "Engine", "EngineForm", "FloatEngine", "engine_file", "levels"]
