"""Other tools, as their documentation says that they are used."""
