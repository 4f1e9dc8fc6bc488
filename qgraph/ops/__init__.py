"""What the graph, the integer program and the actor program share: how an op is defined."""
