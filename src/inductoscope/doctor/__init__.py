"""The main job: from a misbehaving script to the culprit, a proof and a workaround."""
