"""Write integer programs as `.tflite` files of stock ops, and run them in LiteRT and TFLM."""
