"""What is durable: tables, SQL by noun, group commit, leases, hints. The only folder that knows the database."""
