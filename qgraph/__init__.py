"""qgraph: a compiler from trained TensorFlow networks to exact fixed-point ones."""
