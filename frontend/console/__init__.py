"""Pages and routes of the console, where experimenters work."""
