"""OpenTelemetry spans of a query's hops. Until they are switched on, nothing of it is imported.

    with span("retrieve", documents=1000): ...

A query is a span, and each of its hops one inside: tokenize, retrieve, and for each model batch and
interact, then sort. Texts are never among their attributes.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from glassrank.errors import InputError

_OFF: AbstractContextManager[Any] = nullcontext()
_tracer: Any = None


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[Any]:
    """One for each hop, never for a document."""
    if _tracer is None:
        return _OFF
    named = {f"glassrank.{key}": value for key, value in attributes.items()}
    switched_on: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=named)
    return switched_on


def switch_on(provider: Any = None) -> None:
    """From now on, for this process: to this `TracerProvider`, or to the one that the program has
    set, or where there is none to a collector, which `OTEL_EXPORTER_OTLP_ENDPOINT` names."""
    global _tracer
    try:
        from opentelemetry import trace

        if provider is None:
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider):
                trace.set_tracer_provider(_to_a_collector())
                provider = trace.get_tracer_provider()
    except ImportError:
        raise InputError(
            "traces need OpenTelemetry; install it with: pip install 'glassrank[tracing]'"
        ) from None
    _tracer = provider.get_tracer("glassrank")


def switch_off() -> None:
    """No further spans."""
    global _tracer
    _tracer = None


def _to_a_collector() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "glassrank"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
