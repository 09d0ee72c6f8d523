"""The pages, and parts of pages, that come from the code: one file a page."""
