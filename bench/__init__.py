"""`make bench`: what this machine can do, and how much of it is left with everything on. Nothing imports it."""
