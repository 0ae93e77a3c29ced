"""Choose queries: passive samplers need no model, active ones do. Import the module you mean."""
