"""What participants meet: arrival, the steps of a study, the queries, and the way out."""
