"""Tests of messages, templates and transports."""
