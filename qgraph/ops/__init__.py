"""Definition of ops, shared by the graph, the integer program and the actor program."""
