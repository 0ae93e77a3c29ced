# The web process: no torch, no Dask.
FROM python:3.11-slim AS build
WORKDIR /build
COPY requirements/frontend.txt requirements/
RUN python -m venv /salmon && /salmon/bin/pip install --no-cache-dir --require-hashes -r requirements/frontend.txt
COPY pyproject.toml README.md LICENSE ./
COPY requirements/build_backend.py requirements/
COPY salmon salmon
COPY frontend frontend
COPY backend backend
COPY templates templates
COPY examples examples
RUN /salmon/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 salmon && mkdir /data && chown salmon /data
COPY --from=build /salmon /salmon
USER 10001
ENV SALMON_DATA=/data MPLCONFIGDIR=/tmp/matplotlib
VOLUME /data
EXPOSE 8421
ENTRYPOINT ["/salmon/bin/salmon", "frontend"]
CMD ["--host", "0.0.0.0", "--port", "8421"]
