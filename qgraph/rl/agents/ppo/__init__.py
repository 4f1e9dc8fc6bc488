"""PPO; see README.md."""
