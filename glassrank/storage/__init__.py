"""What lies on disk: atomic folders, checksums, arrays that are mapped into memory."""
