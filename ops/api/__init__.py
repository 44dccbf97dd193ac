"""`/api/v1`: what the command line can do, for programs and for the pages; the same functions, the same field names."""
