"""An app whose clients fail on demand."""
