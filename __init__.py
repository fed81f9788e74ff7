"""Marker for static tools: import-graph readers resolve relative imports by package ancestry. Never shipped."""
