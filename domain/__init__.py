"""What is true: events, deliveries and their life, retry, order, signatures. Standard library only; no clock or I/O."""
