# syntax=docker/dockerfile:1
# Targets: `cpu` (about 2 GB) and `cuda` (about 8 GB: torch's wheels carry the CUDA libraries, the
# host brings the driver and the NVIDIA container toolkit).
#
#   docker build --target cpu  -t scriptorium:cpu  .
#   docker build --target cuda -t scriptorium:cuda .

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/scriptorium/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/data/huggingface \
    SCRIPTORIUM_DATA_DIR=/data \
    SCRIPTORIUM_LOG_FORMAT=json

# What the program needs, without the program: changes of our code do not fetch torch again.
FROM base AS requirements
WORKDIR /src
COPY pyproject.toml ./
RUN python -c "import pathlib, tomllib; \
project = tomllib.loads(pathlib.Path('pyproject.toml').read_text())['project']; \
print(*project['dependencies'], sep='\n')" > requirements.txt

FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/scriptorium
COPY constraints.txt ./

FROM build AS build-cpu
RUN --mount=type=cache,target=/root/.cache/pip \
    pip install --no-deps --index-url https://download.pytorch.org/whl/cpu \
        "$(grep '^torch==' constraints.txt)+cpu"
COPY --from=requirements /src/requirements.txt ./
RUN --mount=type=cache,target=/root/.cache/pip pip install -c constraints.txt -r requirements.txt
COPY . .
RUN pip install --no-deps .

FROM build AS build-cuda
COPY --from=requirements /src/requirements.txt ./
RUN --mount=type=cache,target=/root/.cache/pip pip install -c constraints.txt -r requirements.txt
COPY . .
RUN pip install --no-deps .

FROM base AS runtime
RUN useradd --system --uid 10001 --home-dir /data --no-create-home scriptorium \
    && install --directory --owner=scriptorium --mode=0750 /data
USER scriptorium
# Not the sources' folder: only the installed packages may be imported.
WORKDIR /data
# Checkpoints and the Hugging Face cache; without settings also the embedded database and files.
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
ENTRYPOINT ["scriptorium"]
CMD ["up", "--host", "0.0.0.0"]

FROM runtime AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /opt/scriptorium /opt/scriptorium

# Last, so that a build without --target makes it.
FROM runtime AS cpu
COPY --from=build-cpu /opt/scriptorium /opt/scriptorium
