"""Training: settings, launch, the engine, and what it writes."""
