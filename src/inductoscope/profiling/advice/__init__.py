"""What would be faster: one decision of the compiler changed, compiled again and timed."""
