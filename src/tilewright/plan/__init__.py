"""The planning room: the shared-memory budget per number of stages, the prediction, and the decision."""
