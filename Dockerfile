# The service, and every other command:
#
#   docker build --tag glassrank .
#   docker run --rm --user "$(id -u)" --volume "$PWD:/data" glassrank index /data/docs.jsonl --out /data/docs.index
#   docker run --rm --read-only --tmpfs /tmp --volume "$PWD:/data:ro" --publish 8000:8000 \
#       --env GLASSRANK_API_KEY glassrank serve /data/docs.index --host 0.0.0.0
# To build from one image for ever, name it by its digest: --build-arg PYTHON=python@sha256:…
ARG PYTHON=python:3.13-slim
FROM ${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY scripts/requirements scripts/
COPY benchmarks/glassrank_bench benchmarks/glassrank_bench
COPY glassrank glassrank
# Every package must have the hash that constraints.txt has for it.
RUN python -m venv /opt/glassrank \
    && (scripts/requirements build; scripts/requirements base) > requirements.txt \
    && /opt/glassrank/bin/pip install --no-cache-dir --require-hashes --no-deps -r requirements.txt \
    && /opt/glassrank/bin/pip install --no-cache-dir --no-deps --no-build-isolation .
# What searches and ranks is compiled here, for processors like this one; elsewhere at the start.
RUN /opt/glassrank/bin/glassrank warmup

FROM ${PYTHON}
COPY --from=build /opt/glassrank /opt/glassrank
ENV PATH=/opt/glassrank/bin:$PATH PYTHONUNBUFFERED=1
# Neither a name nor a home: nothing is written outside of /tmp and what is mounted.
USER 10001:10001
WORKDIR /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["glassrank"]
CMD ["--help"]
