"""What happens becomes records in the journal's open batch."""
