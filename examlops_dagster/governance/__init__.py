"""What may be built and by whom, what happened, and what was made from what."""
