"""What is known of messages and their failures, said to people: by the command line and by the pages alike."""
