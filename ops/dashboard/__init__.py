"""The pages at `/`: what the API tells, rendered for people. Nothing is read or written here by other functions."""
