"""What others see: official libraries verify what the service sends."""
