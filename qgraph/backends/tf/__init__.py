"""TensorFlow inference graph: stock ops, every quantized tensor equal to the integer reference."""
