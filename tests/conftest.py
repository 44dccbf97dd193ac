"""Fixtures every test may ask for; where they come from is said in their own modules."""

from tests.servers import database_url, empty_database_url, own_servers, redis_url, servers, template_database

__all__ = ["database_url", "empty_database_url", "own_servers", "redis_url", "servers", "template_database"]
