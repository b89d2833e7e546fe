"""The finished predictor: on disk, in use, exported."""
