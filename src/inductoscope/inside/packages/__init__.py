"""Children that load and run AOTInductor packages with torch."""
