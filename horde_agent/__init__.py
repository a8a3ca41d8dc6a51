"""A Horde: many general value functions learned off-policy and in parallel from one stream of experience."""
