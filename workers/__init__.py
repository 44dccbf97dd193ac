"""What runs when: owners, dispatch, lanes, the journal, background jobs."""
