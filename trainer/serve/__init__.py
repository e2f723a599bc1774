"""Answers requests for scores over HTTP."""
