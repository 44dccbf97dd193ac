"""What people write instead of a pipeline."""
