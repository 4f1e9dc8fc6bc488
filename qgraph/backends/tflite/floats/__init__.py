"""Float ops of a network as operators of TFLite."""
