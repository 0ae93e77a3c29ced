"""Pages, as Jinja2 templates; `frontend.pages` holds the context of each."""
