"""A real HTTP server that speaks for a vendor."""

from tests.models.conftest import few_certificates, nobody, server

__all__ = ["few_certificates", "nobody", "server"]
