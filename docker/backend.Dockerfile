# The learning process, the Dask scheduler and its workers.
FROM python:3.11-slim AS build
ARG TORCH_OPTIONS=""
WORKDIR /build
COPY requirements/serve.txt requirements/torch.txt requirements/
# TORCH_OPTIONS is several words on purpose
# hadolint ignore=SC2086
RUN python -m venv /salmon && /salmon/bin/pip install --no-cache-dir --require-hashes -r requirements/serve.txt \
    && /salmon/bin/pip install --no-cache-dir ${TORCH_OPTIONS} -r requirements/torch.txt
COPY pyproject.toml README.md LICENSE ./
COPY salmon salmon
COPY frontend frontend
COPY backend backend
COPY templates templates
COPY examples examples
RUN /salmon/bin/pip install --no-cache-dir --no-build-isolation --no-deps .

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 salmon
COPY --from=build /salmon /salmon
USER 10001
ENV OMP_NUM_THREADS=1 PATH=/salmon/bin:$PATH
ENTRYPOINT []
CMD ["salmon", "backend"]
