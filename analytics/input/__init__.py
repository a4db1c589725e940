"""What the reports read: exports and stores, checked and merged."""
