"""What a sweep will take."""
