"""A MobileNetV2 with the paper's depth, trained on CIFAR-10 and quantized; run `table.py`."""
