"""The learning process: follows the open experiments, refits, searches and publishes queries."""
