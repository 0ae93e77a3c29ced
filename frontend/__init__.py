"""The web process: serves queries to participants, records their answers, shows experimenters what happens."""
