"""What happens becomes records of the journal, and on the next start records become what was."""
