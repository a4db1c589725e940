"""The benchmark harness: docs/performance.md says how to use it and what its figures mean."""
