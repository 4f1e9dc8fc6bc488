"""A MobileNetV2 of the paper's depth, trained on CIFAR-10 and quantized: `table.py` runs it all."""
