"""The application: one Agent, every edge calls it."""
