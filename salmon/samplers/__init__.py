"""What chooses queries: passive samplers, which need no model, and active ones, which do; import the module you mean."""
