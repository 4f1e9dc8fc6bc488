"""TD3; see README.md."""
