"""What people use: command line, metrics, health, the supervisor."""
