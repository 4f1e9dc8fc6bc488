"""Training runs: replay, rate limiter, actors, and the loop of the learner."""
