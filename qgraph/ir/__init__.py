"""The intermediate representation: graph, types, ops, text form, verifier."""
