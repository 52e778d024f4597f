"""Ways round a failure, tried before they are proposed."""
