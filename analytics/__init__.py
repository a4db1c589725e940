"""Reports on exports of the journal. Reads the export's schema (docs/export-schema.md) and nothing else of the project.

Importing this package costs nothing; pyspark, pyarrow and jinja2 are imported by the modules that use them.
"""
