"""Six small networks of well-known families, trained here, and their accuracy after
quantization.
"""
