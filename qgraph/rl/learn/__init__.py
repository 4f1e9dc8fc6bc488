"""Learners and what they learn from: replay, rate limiter, actors, the run around them."""
