# The learning process, the Dask scheduler and its workers.
FROM python:3.11-slim AS build
# Where torch comes from: see requirements/install-torch.
ARG TORCH_INDEX
ENV PIP_NO_CACHE_DIR=1
WORKDIR /build
COPY requirements/serve.txt requirements/torch.txt requirements/install-torch requirements/
RUN python -m venv /salmon && /salmon/bin/pip install --require-hashes -r requirements/serve.txt \
    && requirements/install-torch /salmon/bin/python
COPY pyproject.toml README.md LICENSE ./
COPY requirements/build_backend.py requirements/
COPY salmon salmon
COPY frontend frontend
COPY backend backend
COPY templates templates
COPY examples examples
RUN /salmon/bin/pip install --no-build-isolation --no-deps .

FROM python:3.11-slim
RUN useradd --system --create-home --uid 10001 salmon
COPY --from=build /salmon /salmon
USER 10001
ENV OMP_NUM_THREADS=1 PATH=/salmon/bin:$PATH NUMBA_CACHE_DIR=/tmp/numba MPLCONFIGDIR=/tmp/matplotlib
ENTRYPOINT []
CMD ["salmon", "backend"]
