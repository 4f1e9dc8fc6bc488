"""What a person reads about a quantized network: one HTML page, made from its output directory."""
