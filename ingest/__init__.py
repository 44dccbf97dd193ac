"""How an event comes in: verify, store, answer."""
