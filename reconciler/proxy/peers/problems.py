"""Errors with which agents answer each other (PURE)."""

from reconciler.proxy.errors import Problem


def token_refused(*, came: bool) -> Problem:
    """`came`: a token did, which is not ours."""
    why = "its cluster token is another one" if came else "it has no cluster token"
    return Problem(
        status=403,
        code="cluster_token_refused",
        message=f"cannot let this client follow the node: {why}; give all agents one "
        "--cluster-token-file",
    )
