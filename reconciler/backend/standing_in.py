"""What is said of a fallback: that it is one, and why its source is not used (PURE)."""

from dataclasses import replace

from reconciler.backend.engines import Assessment


def standing_in(fallback: Assessment, source: str, verdict: Assessment) -> Assessment:
    """The fallback's assessment in these words. `verdict`: what is found of its source now."""
    why = _why(source, verdict)
    if fallback.no_backend is not None:
        return replace(fallback, refusal=f"{why}; nor its fallback: {fallback.refusal}")
    if fallback.choice is None:
        return fallback
    over = verdict.no_backend.passed_over if verdict.no_backend is not None else ()
    choice = replace(
        fallback.choice,
        reason=f"fallback: {fallback.choice.reason}; {why}",
        passed_over=(*over, *fallback.choice.passed_over),
    )
    return replace(fallback, choice=choice)


def _why(source: str, verdict: Assessment) -> str:
    if verdict.no_backend is not None:
        cause = verdict.no_backend.cause or verdict.no_backend.reason
        return f"{source} cannot run here: {cause}"
    if verdict.choice is not None:
        backend = verdict.choice.build.id
        return f"{source} could run here on {backend} by now, and is used from its next start on"
    return f"no backend here could run {source}"
