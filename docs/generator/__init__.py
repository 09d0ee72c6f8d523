"""The reference pages that come from the code: one file a page."""
