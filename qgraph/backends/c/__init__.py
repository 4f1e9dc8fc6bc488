"""Programs as C99: integers only, no allocation, no library."""
