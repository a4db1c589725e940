"""The page: numbers as sentences, tables and charts in one HTML file, and the files beside it."""
