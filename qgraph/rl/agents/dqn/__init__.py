"""DQN; see README.md."""
