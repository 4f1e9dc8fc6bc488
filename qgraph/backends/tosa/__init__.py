"""Backend `tosa`: integer programs as TOSA flatbuffers."""
