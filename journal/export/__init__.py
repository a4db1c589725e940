"""Export of a journal to Parquet files."""
