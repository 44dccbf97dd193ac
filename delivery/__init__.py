"""How one attempt goes out: request, guard, client, classification, pool and breaker. Never the database, no lanes."""
