"""OpenTelemetry spans of a query and its steps, without texts; imported when enabled."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from glassrank.errors import needs_extra

_OFF: AbstractContextManager[Any] = nullcontext()
_tracer: Any = None


def span(name: str, **attributes: str | int | float | bool) -> AbstractContextManager[Any]:
    """A span for a step of a query, never for a single document."""
    if _tracer is None:
        return _OFF
    named = {f"glassrank.{key}": value for key, value in attributes.items()}
    started: AbstractContextManager[Any] = _tracer.start_as_current_span(name, attributes=named)
    return started


def enable_tracing(provider: Any = None) -> None:
    """Sends the spans of this process to `provider`, to the `TracerProvider` that the program has
    set, or else to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names."""
    global _tracer
    with needs_extra("tracing", "tracing"):
        from opentelemetry import trace

        if provider is None:
            provider = trace.get_tracer_provider()
            if isinstance(provider, trace.ProxyTracerProvider):
                trace.set_tracer_provider(_collector_provider())
                provider = trace.get_tracer_provider()
    _tracer = provider.get_tracer("glassrank")


def disable_tracing() -> None:
    """Stops making spans."""
    global _tracer
    _tracer = None


def _collector_provider() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": "glassrank"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
