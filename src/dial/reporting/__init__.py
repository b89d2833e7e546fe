"""The report of a run: what is recorded, figures, pages."""
