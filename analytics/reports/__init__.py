"""One table a file: what each says is in its docstring and in docs/analytics.md."""
