"""What experimenters meet: pages and routes of the console."""
