"""Six small networks of well-known families, trained here, and what quantization costs them."""
