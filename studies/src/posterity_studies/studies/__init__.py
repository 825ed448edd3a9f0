"""The studies, a folder each: `declaration`, `cells`, `reading`, `showing`."""
