"""A discrete-event model of learner and actors, with costs that are measured here."""
