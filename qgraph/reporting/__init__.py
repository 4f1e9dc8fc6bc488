"""The report on a quantized network: one HTML page, made from its output directory."""
